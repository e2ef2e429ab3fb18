//! The per-message half of Snavio. `core` thinks; `py` (feature `python`) converts.

pub mod core;

#[cfg(feature = "python")]
mod py;
