//! Ends by the kernel's hand: killed for memory.

use super::{ends::*, *};
use crate::checks::kernel::event::{OomKill, Scope};

fn oom(pid: i32, millis: u64) -> Sign {
    let cgroup = Some("/machine/node/system.slice/kubelet.service".to_owned());
    Sign::OomKill(Box::new(OomKill {
        at: at(millis).uptime,
        pid,
        comm: "kubelet".to_owned(),
        limit_cgroup: cgroup.clone(),
        limit_bytes: Some(64 << 20),
        cgroup,
        scope: Scope::Cgroup,
        pod: None,
        rss_bytes: Some(8 * 1024 * 1024),
    }))
}

#[test]
fn a_kill_for_memory_is_told_whether_the_kernel_speaks_first_or_last() {
    let killed = || ended("a", "signal", (2, 9));
    for is_first in [true, false] {
        for pid in [PID, 4711] {
            let mut kubelet = healthy();
            kubelet.apply(running_in_group(), at(10));
            if is_first {
                kubelet.apply(oom(pid, SECOND), at(SECOND));
                dies(&mut kubelet, killed(), SECOND + 40);
            } else {
                dies(&mut kubelet, killed(), SECOND + 40);
                assert_eq!(reason(&kubelet, SECOND + 50), Some(Reason::KubeletCrashed));
                kubelet.apply(oom(pid, SECOND), at(SECOND + 60));
            }
            assert_eq!(
                reason(&kubelet, SECOND + 70),
                Some(Reason::KubeletOOMKilled),
                "{is_first} {pid}"
            );
            let told = message(&kubelet, SECOND + 70);
            assert!(
                told.contains(
                    "its own memory limit of 64 MiB was reached, that of the cgroup /machine"
                ),
                "{told}"
            );
            assert!(
                told.contains("kubelet pid 100 ") && told.contains("it held 8 MiB"),
                "{told}"
            );
        }
    }
}

#[test]
fn the_kernels_word_waits_for_nobody() {
    // The process is there yet: its memory takes a while to be freed, and systemd knows nothing.
    let mut kubelet = healthy();
    kubelet.apply(running_in_group(), at(10));
    kubelet.apply(oom(PID, SECOND), at(SECOND));
    assert_eq!(reason(&kubelet, SECOND), Some(Reason::KubeletOOMKilled));
    let told = message(&kubelet, SECOND);
    // Gone, as it then is, it is the same sentence; systemd's word of the signal adds nothing.
    kubelet.apply(Sign::Gone(PID), at(2 * SECOND));
    assert_eq!(message(&kubelet, 2 * SECOND), told);
    kubelet.apply(Sign::Unit(ended("a", "signal", (2, 9))), at(2 * SECOND + 5));
    assert_eq!(message(&kubelet, 2 * SECOND + 5), told);
    // The next one that ends was not killed by that.
    lives(&mut kubelet, "b", 3 * SECOND);
    kubelet.apply(Sign::Gone(PID), at(4 * SECOND));
    assert_eq!(message(&kubelet, 4 * SECOND), "", "systemd is asked");
    kubelet.apply(Sign::Unit(exit("b")), at(4 * SECOND + 1));
    assert_eq!(
        reason(&kubelet, 4 * SECOND + 1),
        Some(Reason::KubeletCrashed)
    );
    // Known by its cgroup alone it is no other; and systemd is not waited for, whatever its bus is about to say.
    for is_first in [true, false] {
        let mut kubelet = healthy();
        kubelet.apply(running_in_group(), at(10));
        if is_first {
            kubelet.apply(oom(4711, SECOND), at(SECOND));
            assert_eq!(kubelet.take_suspect().map(|p| p.pid), Some(PID));
            assert_eq!(kubelet.take_suspect(), None, "once");
            assert_eq!(reason(&kubelet, SECOND), Some(Reason::KubeletIsHealthy));
            kubelet.apply(Sign::Dying(PID, true), at(SECOND));
            assert_eq!(reason(&kubelet, SECOND), Some(Reason::KubeletOOMKilled));
        }
        kubelet.apply(Sign::Job(7, JobKind::Unasked), at(SECOND));
        kubelet.apply(Sign::Gone(PID), at(SECOND));
        if !is_first {
            assert_eq!(message(&kubelet, SECOND), "");
            kubelet.apply(oom(4711, SECOND), at(SECOND));
        }
        assert_eq!(
            reason(&kubelet, SECOND),
            Some(Reason::KubeletOOMKilled),
            "{is_first}"
        );
    }
}

#[test]
fn a_kubelet_in_a_container_of_this_host_is_another() {
    let mut kubelet = healthy();
    kubelet.apply(running_in_group(), at(10));
    kubelet.apply(oom(4711, SECOND), at(SECOND));
    assert_eq!(kubelet.take_suspect().map(|p| p.pid), Some(PID));
    kubelet.apply(Sign::Dying(PID, false), at(SECOND));
    assert_eq!(reason(&kubelet, SECOND), Some(Reason::KubeletIsHealthy));
    // If ours is then killed by somebody, it was not for memory.
    dies(&mut kubelet, ended("a", "signal", (2, 9)), SECOND + 500);
    assert_eq!(
        reason(&kubelet, 2 * SECOND),
        Some(Reason::KubeletCrashed),
        "{}",
        message(&kubelet, 2 * SECOND)
    );
    // What was asked of one process is no answer about another.
    let mut kubelet = healthy();
    kubelet.apply(running_in_group(), at(10));
    kubelet.apply(oom(4711, SECOND), at(SECOND));
    kubelet.apply(Sign::Dying(4711, true), at(SECOND));
    assert_eq!(reason(&kubelet, SECOND), Some(Reason::KubeletIsHealthy));
}

#[test]
fn a_late_word_is_about_the_end_before_and_the_next_about_the_next() {
    for pid in [PID, 4711] {
        let mut kubelet = healthy();
        kubelet.apply(running_in_group(), at(10));
        dies(&mut kubelet, ended("a", "signal", (2, 9)), SECOND);
        let next = Process {
            pid: 200,
            started: at(2 * SECOND).uptime,
        };
        kubelet.apply(Sign::Found(Found::One(next)), at(2 * SECOND));
        let dying = |kubelet: &Kubelet| kubelet.ends.kill_of(200).is_some();
        kubelet.apply(oom(pid, SECOND), at(2 * SECOND + 5));
        assert!(!dying(&kubelet), "{pid}: it was about the one before");
        let told = message(&kubelet, 2 * SECOND + 5);
        assert!(
            told.contains("kubelet pid 100 was killed by the kernel"),
            "{told}"
        );
        kubelet.apply(
            oom(if pid == PID { 200 } else { 4712 }, 3 * SECOND),
            at(3 * SECOND),
        );
        kubelet.apply(Sign::Dying(200, true), at(3 * SECOND));
        assert!(dying(&kubelet), "{pid}: that one was heard of");
    }
}

#[test]
fn whoever_answers_was_not_killed() {
    let mut kubelet = healthy();
    kubelet.apply(oom(PID, SECOND), at(SECOND));
    kubelet.apply(Sign::Probed(PID, Probe::Ok), at(2 * SECOND));
    assert_eq!(reason(&kubelet, 2 * SECOND), Some(Reason::KubeletIsHealthy));
}

#[test]
fn strangers_and_older_kills_are_not_the_kubelets_end() {
    let mut kubelet = healthy();
    kubelet.apply(running_in_group(), at(10));
    let Sign::OomKill(mut stranger) = oom(4711, 20 * SECOND) else {
        unreachable!()
    };
    stranger.cgroup = Some("/system.slice/kubelet.service-not".to_owned());
    kubelet.apply(Sign::OomKill(stranger.clone()), at(20 * SECOND));
    for cgroup in [
        Some("/kubepods/burstable/pod1/1/system.slice/kubelet.service"),
        None,
    ] {
        stranger.cgroup = cgroup.map(str::to_owned);
        kubelet.apply(Sign::OomKill(stranger.clone()), at(20 * SECOND));
    }
    stranger.comm = "java".to_owned();
    stranger.cgroup = Some("/system.slice/kubelet.service".to_owned());
    kubelet.apply(Sign::OomKill(stranger), at(20 * SECOND));
    kubelet.apply(oom(4711, SECOND), at(20 * SECOND));
    dies(&mut kubelet, ended("a", "signal", (2, 9)), 20 * SECOND);
    assert_eq!(reason(&kubelet, 21 * SECOND), Some(Reason::KubeletCrashed));
    // A stop that the operator asked for is his, whatever the kernel did meanwhile.
    let mut kubelet = healthy();
    kubelet.apply(oom(PID, SECOND), at(SECOND));
    kubelet.apply(Sign::Job(7, JobKind::Stop), at(SECOND));
    kubelet.apply(Sign::Gone(PID), at(SECOND));
    assert_eq!(
        reason(&kubelet, SECOND),
        Some(Reason::KubeletStoppedByOperator)
    );
}

#[test]
fn systemds_own_word_of_a_kill_for_memory_is_enough() {
    let mut kubelet = healthy();
    dies(&mut kubelet, ended("a", "oom-kill", (1, 0)), SECOND);
    assert_eq!(reason(&kubelet, 2 * SECOND), Some(Reason::KubeletOOMKilled));
}
