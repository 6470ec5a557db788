//! `cargo xtask bpf`: compiles the packet programs in C to the committed objects.
//!
//! Objects are committed so that building Skep does not require clang. They are byte-identical on every
//! machine with the same clang version: they contain neither paths nor times. `--check` recompiles and
//! compares; with another version of clang, or without clang, it reports that and succeeds.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The clang version of the committed objects.
const CLANG_VERSION: &str = "14.0.6";

const PROGRAMS: [&str; 4] = ["dispatch_xdp", "dispatch_tc", "node", "pass"];

/// Compiles all programs to `bpf/objects`.
pub(crate) fn build(root: &Path) -> Result<()> {
    if let Some(obstacle) = obstacle() {
        bail!("{obstacle}; the objects are of clang {CLANG_VERSION}");
    }
    let objects = root.join("bpf/objects");
    for program in PROGRAMS {
        compile(root, program, &objects)?;
    }
    println!("bpf: {} objects written", PROGRAMS.len());
    Ok(())
}

/// Compiles all programs, and compares them with the committed objects.
pub(crate) fn check(root: &Path) -> Result<()> {
    if let Some(obstacle) = obstacle() {
        eprintln!("SKIPPED: bpf: {obstacle}; objects of clang {CLANG_VERSION} not compared");
        return Ok(());
    }
    let directory = std::env::temp_dir().join(format!("skep-bpf-{}", std::process::id()));
    std::fs::create_dir_all(&directory).context("a directory for objects")?;
    let outcome = compare(root, &directory);
    std::fs::remove_dir_all(&directory).context("removing the directory for objects")?;
    outcome
}

fn compare(root: &Path, directory: &Path) -> Result<()> {
    for program in PROGRAMS {
        compile(root, program, directory)?;
        let name = format!("{program}.o");
        let built = std::fs::read(directory.join(&name)).context("a built object")?;
        let path = format!("bpf/objects/{name}");
        let committed = std::fs::read(root.join(&path)).context(path.clone())?;
        ensure!(built == committed, "{path} is not what bpf/{program}.c makes: cargo xtask bpf");
    }
    println!("bpf: {} objects are what their sources make", PROGRAMS.len());
    Ok(())
}

/// Why this machine cannot compile the objects, if it can't.
fn obstacle() -> Option<String> {
    let Ok(output) = Command::new("clang").arg("--version").output() else {
        return Some("clang not found (Debian's packages clang and llvm)".to_owned());
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default();
    if !is_version(line) {
        return Some(format!("clang is another one ({line})"));
    }
    let strip = Command::new("llvm-strip").arg("--version").output();
    strip.is_err().then(|| "llvm-strip not found (Debian's package llvm)".to_owned())
}

fn is_version(line: &str) -> bool {
    line.split_whitespace().any(|word| word == CLANG_VERSION)
}

fn compile(root: &Path, program: &str, directory: &Path) -> Result<()> {
    let object = directory.join(format!("{program}.o"));
    // Debian's folder of the kernel headers for this architecture.
    let include = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut clang = Command::new("clang");
    clang
        .current_dir(root)
        .args(["-O2", "-g", "-target", "bpfel", "-mcpu=v3"])
        .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"])
        .args(["-Wno-unused-variable", "-Wno-unused-parameter"])
        .args(["-fdebug-compilation-dir=.", &include, "-c"])
        .arg(format!("bpf/{program}.c"))
        .arg("-o")
        .arg(&object);
    run(clang)?;
    // Debug sections are removed; types (.BTF) are kept, since maps are defined in them.
    let mut strip = Command::new("llvm-strip");
    strip.arg("-g").arg(&object);
    run(strip)
}

fn run(mut command: Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_a_word_of_its_own() {
        assert!(is_version("Debian clang version 14.0.6"));
        assert!(is_version("clang version 14.0.6 (somewhere)"));
        assert!(!is_version("Debian clang version 14.0.60"));
        assert!(!is_version("Ubuntu clang version 16.0.6"));
        assert!(!is_version(""));
    }
}
