//! How the release binary is linked: with its line tables compressed, since they are as
//! large as its code and nobody reads them before something goes wrong.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        // zlib is what backtraces of the standard library can read.
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
}
