//! Bakes a digest of the Rust sources into the library, so that a stale `.so` is noticed at import.
//!
//! `snavio/native.py` computes the same digest over the same files; keep the two in step.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use sha2::{Digest, Sha256};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut files = vec![root.join("Cargo.toml"), root.join("Cargo.lock")];
    sources(&root.join("src"), &mut files)?;
    let mut named: Vec<(String, PathBuf)> = files
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy();
            (name.replace('\\', "/"), path)
        })
        .collect();
    named.sort();
    let mut digest = Sha256::new();
    for (name, path) in named {
        let body = fs::read(&path)?;
        digest.update(name.as_bytes());
        digest.update([0]);
        digest.update((body.len() as u64).to_le_bytes());
        digest.update(&body);
    }
    let hex: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("cargo:rustc-env=SNAVIO_SOURCE_DIGEST={hex}");
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=Cargo.toml");
    println!("cargo:rerun-if-changed=Cargo.lock");
    Ok(())
}
