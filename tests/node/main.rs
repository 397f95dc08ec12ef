//! The tests on real nodes: every file here is a topic and lists its tests.
//!
//! They run in namespaces of their own (`support::enter`) and share one control plane; two at a time, unless
//! `--test-threads` says otherwise.

#![expect(
    clippy::disallowed_methods,
    reason = "the tests stand outside the agent and measure it with a clock of their own"
)]

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

mod agent;
mod ahead;
mod api;
mod audit;
mod bootstrap;
mod bundle;
mod bus;
mod check;
mod cleanup;
mod cloud_init;
mod config;
mod consumers;
mod dependency;
mod doctor;
mod emergency;
mod fatal;
mod faults;
mod harness;
mod host;
mod hostile;
mod identity;
mod karpenter;
mod life;
mod lifecycle;
mod lookup;
mod lost_nodes;
mod memory;
mod memory_kill;
mod metrics;
mod packages;
mod peer;
mod privilege;
mod provoked_boot;
mod provoked_kernel;
mod provoked_life;
mod provoked_storage;
mod racing;
mod reach;
mod runtime;
mod samples;
mod sandbox;
mod scene;
mod standing;
mod stopping;
mod story;
mod telling;
mod tried;
mod well;

#[path = "../../packaging/build/mod.rs"]
mod build;
#[path = "../support/mod.rs"]
mod support;

fn main() -> ExitCode {
    support::bus_flood::serve_if_asked();
    support::lone_agent::stand_in::serve_if_asked();
    support::enter::enter();
    if harness::is_victim() {
        return harness::victim();
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2); // each boots a node, and few machines have cores for more
    let tests = tests(&arguments);
    libtest_mimic::run(&arguments, tests).exit_code()
}

/// The tests of every topic.
fn tests(arguments: &Arguments) -> Vec<Trial> {
    [
        harness::tests(),
        life::tests(),
        provoked_life::tests(),
        lookup::tests(),
        agent::tests(),
        ahead::tests(),
        metrics::tests(),
        api::tests(),
        audit::tests(),
        host::tests(),
        hostile::tests(),
        identity::tests(),
        privilege::tests(),
        telling::tests(),
        provoked_kernel::tests(),
        memory::tests(),
        dependency::tests(),
        doctor::tests(),
        sandbox::tests(),
        config::tests(),
        bootstrap::tests(),
        bundle::tests(),
        bus::tests(),
        check::tests(),
        fatal::tests(),
        cloud_init::tests(),
        story::tests(),
        standing::tests(),
        stopping::tests(),
        provoked_storage::tests(),
        provoked_boot::tests(),
        cleanup::tests(),
        packages::tests(),
        tried::tests(),
        karpenter::tests(),
        consumers::tests(),
        samples::tests(),
        lifecycle::tests(),
        lost_nodes::tests(),
        memory_kill::tests(),
        emergency::tests(),
        racing::tests(),
        runtime::tests(),
        peer::tests(),
        reach::tests(),
        // Last: they have begun, and the others go on beside them.
        faults::tests(arguments),
        well::tests(arguments),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A test, while nobody fills the kernel's log; its error says all it knows. One that fails is tried once more, and its failure is
/// printed all the same: what hangs on the load of two cores passes then, what is broken fails again.
fn trial(name: &str, test: impl Fn() -> anyhow::Result<()> + Send + 'static) -> Trial {
    let called = name.to_owned();
    Trial::test(name, move || {
        let _calm = support::kmsg::beside();
        let Err(first) = test() else { return Ok(()) };
        support::say(&format!(
            "AGAIN | {called} failed, and is tried once more: {first:#}"
        ));
        test().map_err(|again| format!("{again:#}\n(the first try: {first:#})").into())
    })
}
