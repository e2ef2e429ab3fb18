// Copies the protos into dist, where the library reads them at its first call.
import { cpSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const into = fileURLToPath(new URL("dist/proto", import.meta.url));
rmSync(into, { recursive: true, force: true });
cpSync(fileURLToPath(new URL("../../proto", import.meta.url)), into, { recursive: true });
