//! Probes that fail, with and without a second witness.

use super::*;

fn failing(probe: &Probe) -> Kubelet {
    let mut kubelet = healthy();
    kubelet.apply(Sign::ProcessState(PID, 'S'), at(9_000));
    for _ in 0..3 {
        kubelet.apply(Sign::Probed(PID, probe.clone()), at(10_000));
    }
    assert!(kubelet.is_silent(at(10_000)));
    assert_eq!(
        reason(&kubelet, 10_000),
        Some(Reason::KubeletHealthzSilent),
        "nobody else has said anything"
    );
    kubelet
}

fn looked(kubelet: &mut Kubelet, listening: Listening) {
    let sample = Sample {
        listening,
        ..Sample::default()
    };
    kubelet.apply(Sign::Sampled(PID, sample), at(10_000));
}

/// The Lease is read at that time, and was renewed `ago` seconds before.
fn read(kubelet: &mut Kubelet, millis: u64, ago: i64) {
    let renewed = Timestamp::UNIX_EPOCH - jiff::SignedDuration::from_secs(ago);
    let now = Now {
        wall: Timestamp::UNIX_EPOCH + Duration::from_millis(millis - 10_000),
        ..at(millis)
    };
    let duration = Duration::from_secs(40);
    kubelet.apply(Sign::Lease { renewed, duration }, now);
}

#[test]
fn a_queue_that_fills_and_a_port_without_a_listener_are_witnesses() {
    let mut kubelet = failing(&Probe::Timeout);
    looked(&mut kubelet, Listening::Waiting(1));
    assert_eq!(reason(&kubelet, 10_000), Some(Reason::KubeletHealthzSilent));
    looked(&mut kubelet, Listening::Waiting(2));
    assert_eq!(reason(&kubelet, 10_000), Some(Reason::KubeletHung));
    // A firewall that drops lets nothing come as far as the queue; one that refuses does so for somebody who listens.
    for (probe, listening, expected) in [
        (
            Probe::Unreachable,
            Listening::Waiting(0),
            Reason::KubeletHealthzSilent,
        ),
        (
            Probe::Refused,
            Listening::Waiting(0),
            Reason::KubeletHealthzSilent,
        ),
        (
            Probe::Refused,
            Listening::Unknown,
            Reason::KubeletHealthzSilent,
        ),
        (
            Probe::Refused,
            Listening::Nobody,
            Reason::KubeletHealthzDown,
        ),
    ] {
        let mut kubelet = failing(&probe);
        looked(&mut kubelet, listening);
        looked(&mut kubelet, listening);
        assert_eq!(
            reason(&kubelet, 10_000),
            Some(expected),
            "{probe:?} {listening:?}"
        );
    }
}

#[test]
fn a_fresh_lease_makes_it_a_warning_and_an_old_one_a_fault() {
    let unreachable = Some(Reason::KubeletHealthzUnreachable);
    for (probe, fault) in [
        (Probe::Timeout, Reason::KubeletHung),
        (Probe::Refused, Reason::KubeletHealthzDown),
        (Probe::Unreachable, Reason::KubeletHealthzDown),
        (Probe::Status(500), Reason::KubeletHealthzDown),
    ] {
        let mut kubelet = failing(&probe);
        read(&mut kubelet, 10_000, 5);
        assert_eq!(reason(&kubelet, 10_000), unreachable);
        // It is not renewed any more.
        read(&mut kubelet, 25_000, 5);
        read(&mut kubelet, 40_000, 5);
        assert_eq!(reason(&kubelet, 40_000), unreachable);
        read(&mut kubelet, 45_000, 5);
        assert_eq!(reason(&kubelet, 45_000), Some(fault), "{probe:?}");
        // A stopped process counts, however fresh the Lease is.
        let mut kubelet = failing(&probe);
        read(&mut kubelet, 10_000, 5);
        kubelet.apply(Sign::ProcessState(PID, 'T'), at(10_000));
        assert_eq!(reason(&kubelet, 10_000), Some(fault), "{probe:?}");
        // An answer forgets what was seen.
        kubelet.apply(Sign::Probed(PID, Probe::Ok), at(11_000));
        assert!(!kubelet.is_silent(at(11_000)));
        assert_eq!(reason(&kubelet, 11_000), Some(Reason::KubeletIsHealthy));
    }
}

#[test]
fn a_lease_that_looks_old_must_be_seen_to_stay_so() {
    let silent = Some(Reason::KubeletHealthzSilent);
    // The clock was set by an hour, one way or the other, and the kubelet works.
    for ago in [3600, -3600] {
        let mut kubelet = failing(&Probe::Unreachable);
        read(&mut kubelet, 10_000, ago);
        let first = reason(&kubelet, 10_000);
        assert!(first.is_some_and(|reason| reason.status() != crate::health::Status::False));
        read(&mut kubelet, 20_000, ago - 10);
        assert_eq!(
            reason(&kubelet, 20_000),
            Some(Reason::KubeletHealthzUnreachable)
        );
    }
    let mut kubelet = failing(&Probe::Unreachable);
    read(&mut kubelet, 10_000, 3600);
    read(&mut kubelet, 29_000, 3600);
    assert_eq!(reason(&kubelet, 29_000), silent);
    read(&mut kubelet, 30_000, 3600);
    assert_eq!(reason(&kubelet, 30_000), Some(Reason::KubeletHealthzDown));
    // It could not be read again for long: it is no witness either way.
    assert_eq!(reason(&kubelet, 60_001), silent);
    let mut kubelet = failing(&Probe::Unreachable);
    read(&mut kubelet, 10_000, 1);
    assert_eq!(reason(&kubelet, 40_001), silent);
}

/// A firewall on the port of a kubelet that starts.
#[test]
fn a_start_behind_a_firewall_is_no_slow_start() {
    for probe in [Probe::Timeout, Probe::Refused, Probe::Unreachable] {
        let mut kubelet = Kubelet::new("kubelet.service");
        kubelet.apply(Sign::Found(Found::One(process(PID))), at(0));
        let url = "http://127.0.0.1:10248/healthz".into();
        kubelet.apply(Sign::Endpoint(PID, Endpoint::Known(url)), at(0));
        for _ in 0..3 {
            kubelet.apply(Sign::Probed(PID, probe.clone()), at(110_000));
        }
        looked(&mut kubelet, Listening::Waiting(0));
        assert_eq!(reason(&kubelet, 110_000), Some(Reason::KubeletStarting));
        let silent = Some(Reason::KubeletHealthzSilent);
        assert_eq!(reason(&kubelet, 120_000), silent);
        // Renewed five seconds before, in the clock of `read`.
        let renewed = 5 - 110;
        read(&mut kubelet, 120_000, renewed);
        let unreachable = Some(Reason::KubeletHealthzUnreachable);
        assert_eq!(reason(&kubelet, 120_000), unreachable, "{probe:?}");
        // Nor does it renew its Lease.
        read(&mut kubelet, 145_000, renewed);
        read(&mut kubelet, 160_000, renewed);
        assert_eq!(reason(&kubelet, 160_000), Some(Reason::KubeletStartSlow));
    }
}
