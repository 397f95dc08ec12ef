//! Has the linker put what the agent runs all the time side by side (`packaging/order.ld`): docs/decisions.md, "Small by the
//! linker, too".

#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script everything by the environment"
)]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=packaging/order.ld");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|set| set == value);
    // As it is shipped; debug builds are for tests alone, and elsewhere nobody has measured it.
    if is("TARGET", "x86_64-unknown-linux-musl") && is("PROFILE", "release") {
        let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bin=nodevigil=-Wl,-T,{folder}/packaging/order.ld");
    }
}
