//! Linker options of the release binary: its line tables are compressed, since they are as large as its code
//! and are needed only after a failure.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        // The standard library's backtraces support zlib.
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
}
