//! Histories of a kubelet, told as signs.

mod dependencies;
mod ends;
mod foreign_signals;
mod killed;
mod later;
mod stuck;
mod witness;

use jiff::Timestamp;

use super::*;
use crate::health::Reason;

const PID: i32 = 100;

fn at(millis: u64) -> Now {
    Now {
        uptime: Duration::from_hours(1) + Duration::from_millis(millis),
        wall: Timestamp::UNIX_EPOCH,
    }
}

fn process(pid: i32) -> Process {
    Process {
        pid,
        started: at(0).uptime,
    }
}

fn unit(active: &str, sub: &str, main_pid: u32, exec: (u32, i32, i32)) -> Sign {
    Sign::Unit(Unit {
        load_state: "loaded".to_owned(),
        active_state: active.to_owned(),
        sub_state: sub.to_owned(),
        main_pid,
        exec_main_pid: exec.0,
        exec_main_code: exec.1,
        exec_main_status: exec.2,
        result: "signal".to_owned(),
        ever_started: true,
        ..Unit::default()
    })
}

fn running() -> Sign {
    unit("active", "running", 100, (100, 0, 0))
}

fn killed() -> Sign {
    unit("activating", "auto-restart", 0, (100, 2, 9))
}

fn healthy() -> Kubelet {
    let mut kubelet = Kubelet::new("kubelet.service");
    kubelet.apply(running(), at(0));
    kubelet.apply(Sign::Found(Found::One(process(PID))), at(0));
    let url = "http://127.0.0.1:10248/healthz".into();
    kubelet.apply(Sign::Endpoint(PID, Endpoint::Known(url)), at(1));
    kubelet.apply(Sign::Probed(PID, Probe::Ok), at(2));
    assert_eq!(reason(&kubelet, 2), Some(Reason::KubeletIsHealthy));
    kubelet
}

fn after(mut kubelet: Kubelet, signs: impl IntoIterator<Item = Sign>) -> Kubelet {
    for sign in signs {
        kubelet.apply(sign, at(10_000));
    }
    kubelet
}

fn reason(kubelet: &Kubelet, millis: u64) -> Option<Reason> {
    reason_after(kubelet, None, millis)
}

fn reason_after(kubelet: &Kubelet, before: Option<Reason>, millis: u64) -> Option<Reason> {
    match kubelet.assess(before, at(millis)) {
        Assessment::Found(finding) => Some(finding.reason),
        Assessment::NothingNew => None,
    }
}

#[test]
fn a_kill_waits_three_milliseconds_for_its_cause() {
    let mut kubelet = after(healthy(), [Sign::Gone(PID)]);
    assert_eq!(reason(&kubelet, 10_000), None);
    assert_eq!(kubelet.next_deadline(at(10_000)), Some(at(10_003).uptime));
    kubelet.apply(running(), at(10_001));
    assert_eq!(
        reason(&kubelet, 10_001),
        None,
        "an answer with the dead MainPID is none"
    );
    kubelet.apply(killed(), at(10_002));
    assert_eq!(reason(&kubelet, 10_002), Some(Reason::KubeletCrashed));
}

#[test]
fn without_an_answer_it_is_gone_and_refined_later() {
    let mut kubelet = after(healthy(), [Sign::Gone(PID)]);
    kubelet.tick(at(10_003));
    assert_eq!(reason(&kubelet, 10_003), Some(Reason::KubeletGone));
    kubelet.apply(killed(), at(10_050));
    assert_eq!(reason(&kubelet, 10_050), Some(Reason::KubeletCrashed));
    let clean = unit("inactive", "dead", 0, (100, 1, 0));
    let kubelet = after(healthy(), [Sign::Gone(PID), clean]);
    assert_eq!(reason(&kubelet, 10_000), Some(Reason::KubeletExitedClean));
}

#[test]
fn jobs_known_beforehand_say_whose_will_it_was() {
    for (kind, expected) in [
        (JobKind::Stop, Some(Reason::KubeletStoppedByOperator)),
        (JobKind::Restart, None),
        (JobKind::Start, None), // what systemd makes of a restart job once the stopping is done
        (JobKind::Other, Some(Reason::KubeletCrashed)),
    ] {
        let signs = [
            Sign::Job(7, JobKind::Unasked),
            Sign::Job(7, kind),
            Sign::Gone(PID),
            killed(),
        ];
        assert_eq!(
            reason(&after(healthy(), signs), 10_000),
            expected,
            "{kind:?}"
        );
    }
}

#[test]
fn a_job_whose_type_comes_late_is_waited_for() {
    let job = [Sign::Job(7, JobKind::Unasked), Sign::Gone(PID), killed()];
    let mut kubelet = after(healthy(), job.clone());
    assert_eq!(reason(&kubelet, 10_500), None);
    kubelet.apply(Sign::Job(7, JobKind::Stop), at(10_500));
    assert_eq!(
        reason(&kubelet, 10_500),
        Some(Reason::KubeletStoppedByOperator)
    );

    let mut kubelet = after(healthy(), job.clone());
    kubelet.apply(Sign::Job(7, JobKind::Other), at(10_500));
    assert_eq!(reason(&kubelet, 10_500), Some(Reason::KubeletCrashed));

    let mut kubelet = after(healthy(), job);
    kubelet.tick(at(11_000));
    assert_eq!(
        reason(&kubelet, 11_000),
        Some(Reason::KubeletGone),
        "but not for ever"
    );

    // Announced after the pidfd was seen, because our loop was late.
    let late = [
        Sign::Gone(PID),
        Sign::Job(7, JobKind::Unasked),
        unit("inactive", "dead", 0, (100, 2, 15)),
        Sign::JobDone(7),
    ];
    assert_eq!(
        reason(&after(healthy(), late), 10_000),
        Some(Reason::KubeletStoppedByOperator)
    );
}

#[test]
fn a_second_restart_on_the_heels_of_the_first_is_a_plan_too() {
    let mut kubelet = after(healthy(), [Sign::Job(7, JobKind::Restart), Sign::Gone(PID)]);
    let next = Process {
        pid: 101,
        started: at(11_000).uptime,
    };
    // Its job is announced before we have found the process that it is about.
    kubelet.apply(Sign::JobDone(7), at(11_010));
    kubelet.apply(Sign::Job(8, JobKind::Restart), at(11_020));
    kubelet.apply(Sign::Found(Found::One(next)), at(11_030));
    kubelet.apply(Sign::Gone(101), at(11_040));
    assert_eq!(reason(&kubelet, 11_040), None);
    kubelet.apply(unit("inactive", "dead", 0, (101, 1, 0)), at(11_050));
    assert_eq!(reason(&kubelet, 11_050), None);
}

#[test]
fn a_restart_of_systemds_own_is_no_plan() {
    let signs = [
        Sign::Gone(PID),
        killed(),
        Sign::Job(8, JobKind::Unasked),
        Sign::Job(8, JobKind::Restart),
    ];
    assert_eq!(
        reason(&after(healthy(), signs), 10_000),
        Some(Reason::KubeletCrashed)
    );
}

#[test]
fn a_planned_restart_is_no_news_unless_it_fails() {
    let planned = [Sign::Job(7, JobKind::Restart), Sign::Gone(PID)];
    let mut kubelet = after(healthy(), planned.clone());
    kubelet.apply(
        Sign::Found(Found::One(Process {
            pid: 101,
            started: at(11_000).uptime,
        })),
        at(11_000),
    );
    let url = "http://127.0.0.1:10248/healthz".into();
    kubelet.apply(Sign::Endpoint(101, Endpoint::Known(url)), at(11_001));
    for _ in 0..5 {
        kubelet.apply(Sign::Probed(101, Probe::Refused), at(12_000));
        assert_eq!(reason(&kubelet, 12_000), None);
    }
    let late = 11_000 + 120_000;
    // Something may keep the probes from it.
    assert_eq!(reason(&kubelet, late), Some(Reason::KubeletHealthzSilent));
    kubelet.apply(Sign::Sampled(101, no_listener()), at(late));
    assert_eq!(reason(&kubelet, late), Some(Reason::KubeletStartSlow));

    let mut kubelet = after(healthy(), planned);
    kubelet.tick(at(10_000 + 120_000));
    assert_eq!(reason(&kubelet, 130_000), Some(Reason::KubeletGone));
}

#[test]
fn three_misses_make_a_problem_and_each_kind_has_its_reason() {
    for (probe, expected) in [
        (Probe::Timeout, Reason::KubeletHung),
        (Probe::Refused, Reason::KubeletHealthzDown),
        (Probe::Unreachable, Reason::KubeletHealthzDown),
        (Probe::Status(500), Reason::KubeletHealthzDown),
        (
            Probe::Impossible("no memory".to_owned()),
            Reason::KubeletProbeFailed,
        ),
    ] {
        let mut kubelet = healthy();
        kubelet.apply(Sign::ProcessState(PID, 'T'), at(9_000));
        for _ in 0..2 {
            kubelet.apply(Sign::Probed(PID, probe.clone()), at(10_000));
            assert_eq!(reason(&kubelet, 10_000), None);
            assert_eq!(kubelet.probe_interval(), PROBE_TIMEOUT, "back to back");
        }
        kubelet.apply(Sign::Probed(PID, probe), at(10_000));
        assert_eq!(reason(&kubelet, 10_000), Some(expected));
        kubelet.apply(Sign::Probed(PID, Probe::Ok), at(10_000));
        assert_eq!(reason(&kubelet, 10_000), Some(Reason::KubeletIsHealthy));
    }
}

#[test]
fn an_address_that_is_only_the_default_proves_nothing() {
    let mut kubelet = Kubelet::new("kubelet.service");
    let old = Process {
        pid: PID,
        started: Duration::ZERO,
    };
    kubelet.apply(Sign::Found(Found::One(old)), at(0));
    let url = "http://127.0.0.1:10248/healthz".into();
    kubelet.apply(Sign::Endpoint(PID, Endpoint::Assumed(url)), at(0));
    let refused = || Sign::Probed(PID, Probe::Refused);
    let kubelet = after(kubelet, [refused(), refused(), refused()]);
    assert_eq!(reason(&kubelet, 10_000), Some(Reason::KubeletProbeFailed));
    let kubelet = after(
        kubelet,
        [
            Sign::Probed(PID, Probe::Ok),
            Sign::ProcessState(PID, 'D'),
            refused(),
            refused(),
            refused(),
        ],
    );
    assert_eq!(
        reason(&kubelet, 10_000),
        Some(Reason::KubeletHealthzDown),
        "it has answered there"
    );
}

#[test]
fn a_young_kubelet_is_starting() {
    let mut kubelet = Kubelet::new("kubelet.service");
    kubelet.apply(Sign::Found(Found::One(process(PID))), at(0));
    assert_eq!(reason(&kubelet, 0), None, "nothing was asked yet");
    kubelet.apply(Sign::Endpoint(PID, Endpoint::Known("u".into())), at(0));
    for _ in 0..5 {
        kubelet.apply(Sign::Probed(PID, Probe::Refused), at(5_000));
    }
    assert_eq!(reason(&kubelet, 5_000), Some(Reason::KubeletStarting));
    assert!(!kubelet.is_silent(at(119_000)));
    assert!(kubelet.is_silent(at(120_000)), "its Lease is looked at");
    assert_eq!(
        reason(&kubelet, 120_000),
        Some(Reason::KubeletHealthzSilent)
    );
    kubelet.apply(Sign::Sampled(PID, no_listener()), at(120_000));
    assert_eq!(reason(&kubelet, 120_000), Some(Reason::KubeletStartSlow));
}

/// The kernel lists nobody at its port.
fn no_listener() -> Sample {
    Sample {
        listening: Listening::Nobody,
        ..Sample::default()
    }
}

#[test]
fn what_is_not_there_is_told_by_its_unit() {
    let absent = |unit| {
        let mut kubelet = Kubelet::new("kubelet.service");
        kubelet.apply(Sign::Found(Found::None("no process".to_owned())), at(0));
        kubelet.apply(Sign::AwaitsJoin(false), at(0));
        kubelet.apply(unit, at(0));
        kubelet
    };
    let not_found = Sign::Unit(Unit {
        load_state: "not-found".to_owned(),
        ..Unit::default()
    });
    assert_eq!(reason(&absent(not_found), 0), Some(Reason::KubeletNotFound));
    assert_eq!(reason(&absent(killed()), 0), Some(Reason::KubeletCrashed));
    let failed = unit("failed", "failed", 0, (90, 1, 1));
    assert_eq!(reason(&absent(failed), 0), Some(Reason::KubeletCrashed));
    let before = unit("activating", "start-pre", 0, (0, 0, 0));
    assert_eq!(reason(&absent(before), 0), Some(Reason::KubeletStarting));
    let down = || absent(unit("inactive", "dead", 0, (90, 1, 0)));
    assert_eq!(reason(&down(), 0), Some(Reason::KubeletNotFound));
    let stopped = Some(Reason::KubeletStoppedByOperator);
    assert_eq!(
        reason_after(&down(), stopped, 0),
        stopped,
        "an earlier life of ours saw it"
    );
}

#[test]
fn one_that_was_restarted_while_we_were_away_has_its_grace() {
    let healthy = Some(Reason::KubeletIsHealthy);
    let mut kubelet = Kubelet::new("kubelet.service");
    kubelet.apply(Sign::Found(Found::None("no process".to_owned())), at(0));
    assert_eq!(
        reason_after(&kubelet, None, 0),
        None,
        "systemd was not heard yet"
    );
    kubelet.apply(unit("active", "running", 100, (100, 0, 0)), at(1));
    assert_eq!(
        reason_after(&kubelet, healthy, 1),
        None,
        "forked, not yet the kubelet"
    );
    assert_eq!(
        reason_after(&kubelet, None, 1),
        Some(Reason::KubeletNotFound)
    );
    assert_eq!(
        reason_after(&kubelet, healthy, 120_000),
        Some(Reason::KubeletNotFound)
    );
    kubelet.apply(Sign::Found(Found::One(process(PID))), at(2));
    kubelet.apply(Sign::Endpoint(PID, Endpoint::Known("u".into())), at(2));
    kubelet.apply(Sign::Probed(PID, Probe::Refused), at(3));
    assert_eq!(reason_after(&kubelet, healthy, 3), None);
    assert_eq!(
        reason_after(&kubelet, None, 3),
        Some(Reason::KubeletStarting)
    );
}

#[test]
fn a_death_before_systemd_was_heard_waits_for_its_jobs() {
    let mut kubelet = Kubelet::new("kubelet.service");
    let signs = [Sign::Found(Found::One(process(PID))), Sign::Gone(PID)];
    for sign in signs {
        kubelet.apply(sign, at(10));
    }
    assert_eq!(reason(&kubelet, 500), None);
    kubelet.apply(Sign::Job(7, JobKind::Unasked), at(500));
    kubelet.apply(killed(), at(500));
    kubelet.apply(Sign::Job(7, JobKind::Restart), at(501));
    assert_eq!(reason(&kubelet, 501), None, "a planned restart");
}

#[test]
fn a_restart_job_that_became_a_start_job_before_systemd_was_heard_is_a_plan() {
    let mut kubelet = Kubelet::new("kubelet.service");
    let down = Unit {
        load_state: "loaded".to_owned(),
        active_state: "inactive".to_owned(),
        exec_main_pid: 100,
        exec_main_code: 1,
        result: "success".to_owned(),
        ..Unit::default()
    };
    let signs = [
        Sign::Found(Found::One(process(PID))),
        Sign::Gone(PID),
        Sign::Job(7, JobKind::Unasked),
        Sign::Unit(down),
        Sign::Job(7, JobKind::Start),
    ];
    for sign in signs {
        kubelet.apply(sign, at(10));
    }
    assert_eq!(reason(&kubelet, 10), None);
}

/// systemd answers when it comes to it: then the restart job is a start job, or done, and the unit has another process.
#[test]
fn a_restart_is_one_however_late_its_job_is_asked_about() {
    let done = |active: &str, sub: &str, pid: u32| {
        let Sign::Unit(mut unit) = unit(active, sub, pid, (100, 1, 0)) else {
            panic!("a unit");
        };
        "success".clone_into(&mut unit.result);
        if pid != 0 {
            (unit.exec_main_pid, unit.exec_main_code) = (pid, 0);
        }
        Sign::Unit(unit)
    };
    let job = |kind| Sign::Job(7, kind);
    for rest in [
        vec![job(JobKind::Start)],
        vec![job(JobKind::Start), done("active", "running", 200)],
        vec![done("active", "running", 200), job(JobKind::Start)],
        vec![done("inactive", "dead", 0), job(JobKind::Start)],
        vec![done("active", "running", 200), Sign::JobDone(7)],
    ] {
        let mut signs = vec![job(JobKind::Unasked), Sign::Gone(PID)];
        signs.extend(rest.clone());
        let mut kubelet = after(healthy(), signs);
        kubelet.tick(at(12_000));
        assert_eq!(reason(&kubelet, 12_000), None, "{rest:?}");
    }
    // What comes behind a crash is somebody's or systemd's answer to it.
    let crash = [
        Sign::Gone(PID),
        killed(),
        job(JobKind::Unasked),
        job(JobKind::Start),
    ];
    assert_eq!(
        reason(&after(healthy(), crash), 10_000),
        Some(Reason::KubeletCrashed)
    );
    // Nor is one that systemd started by itself.
    let Sign::Unit(mut again) = done("active", "running", 200) else {
        panic!("a unit");
    };
    again.restarts = 1;
    let own = [
        job(JobKind::Unasked),
        Sign::Gone(PID),
        Sign::Unit(again),
        Sign::JobDone(7),
    ];
    let mut kubelet = after(healthy(), own);
    kubelet.tick(at(12_000));
    assert_eq!(reason(&kubelet, 12_000), Some(Reason::KubeletGone));
}

#[test]
fn one_that_came_and_went_unseen_is_told_by_its_unit() {
    let stopped = [
        Sign::Job(7, JobKind::Stop),
        Sign::Gone(PID),
        Sign::JobDone(7),
    ];
    let kubelet = after(healthy(), stopped);
    let kubelet = after(
        kubelet,
        [unit("activating", "auto-restart", 0, (105, 1, 1))],
    );
    assert_eq!(reason(&kubelet, 10_000), Some(Reason::KubeletCrashed));
}

#[test]
fn a_wrapper_tells_how_it_ended() {
    let mut kubelet = healthy();
    kubelet.apply(unit("active", "running", 99, (99, 0, 0)), at(5));
    let signs = [
        Sign::Gone(PID),
        unit("activating", "auto-restart", 0, (99, 1, 137)),
    ];
    assert_eq!(
        reason(&after(kubelet, signs), 10_000),
        Some(Reason::KubeletCrashed)
    );
}

#[test]
fn two_candidates_are_unknown_and_a_listing_loses_nobody() {
    let mut kubelet = Kubelet::new("kubelet.service");
    kubelet.apply(Sign::Found(Found::Many(vec![5, 6])), at(0));
    let Assessment::Found(finding) = kubelet.assess(None, at(0)) else {
        panic!()
    };
    assert_eq!(finding.reason, Reason::KubeletNotFound);
    assert!(finding.message.contains("5, 6"));
    let kubelet = after(
        healthy(),
        [
            Sign::Found(Found::Many(vec![5, 6])),
            Sign::Found(Found::None(String::new())),
        ],
    );
    assert_eq!(reason(&kubelet, 10_000), Some(Reason::KubeletIsHealthy));
}

#[test]
fn signs_of_another_process_change_nothing() {
    let strangers = [
        Sign::Gone(5),
        Sign::Probed(5, Probe::Timeout),
        Sign::ProcessState(5, 'T'),
        Sign::Endpoint(5, Endpoint::Disabled),
    ];
    assert_eq!(
        reason(&after(healthy(), strangers), 10_000),
        Some(Reason::KubeletIsHealthy)
    );
}

#[test]
fn a_job_whose_end_went_by_unheard_excuses_nothing() {
    let stale = [Sign::Job(7, JobKind::Stop), Sign::JobsUntold];
    let kubelet = after(after(healthy(), stale), [Sign::Gone(PID), killed()]);
    assert_eq!(reason(&kubelet, 10_000), Some(Reason::KubeletCrashed));
}

#[test]
fn a_lost_bus_takes_its_jobs_along() {
    let signs = [Sign::Job(7, JobKind::Stop), Sign::BusLost, Sign::Gone(PID)];
    let mut kubelet = after(healthy(), signs);
    kubelet.tick(at(10_003));
    assert_eq!(reason(&kubelet, 10_003), Some(Reason::KubeletGone));
}

/// A kubelet that times out three times, with what was seen of its strain after each.
fn times_out(strain: Strain, state: char) -> Kubelet {
    let mut kubelet = after(healthy(), [Sign::ProcessState(PID, state)]);
    assert!(!kubelet.take_strain_is_wanted(), "not while it answers");
    for _ in 0..3 {
        kubelet.apply(Sign::Probed(PID, Probe::Timeout), at(10_000));
        assert!(kubelet.take_strain_is_wanted());
        assert!(!kubelet.take_strain_is_wanted(), "once");
        kubelet.apply(Sign::Strain(PID, strain), at(10_000));
    }
    kubelet
}

const STARVING: Strain = Strain {
    cpu_percent: Some(90),
    memory_percent: None,
    waited_percent: Some(95),
};

#[test]
fn a_starved_kubelet_is_not_called_hung() {
    let well = Some(Reason::KubeletIsHealthy);
    let mut kubelet = times_out(STARVING, 'R');
    let reason = |kubelet: &Kubelet, before| reason_after(kubelet, before, 10_000);
    assert_eq!(reason(&kubelet, well), Some(Reason::KubeletStarved));
    let hint = Some(Reason::KubeletStarved);
    assert_eq!(reason(&kubelet, hint), Some(Reason::KubeletStarved));
    // What was told before it starved is neither ended nor refined by that.
    for before in [Reason::KubeletHung, Reason::KubeletStarting] {
        assert_eq!(reason(&kubelet, Some(before)), None);
    }
    // Looks that miss it do not end it.
    for millis in (11_000..40_000).step_by(1000) {
        kubelet.apply(Sign::Strain(PID, Strain::default()), at(millis));
        let said = reason_after(&kubelet, hint, millis);
        assert_eq!(said, Some(Reason::KubeletStarved), "{millis}");
    }
    // Nobody starves any more, and it does not answer all the same.
    let reason = |kubelet: &Kubelet, before| reason_after(kubelet, before, 40_000);
    assert_eq!(reason(&kubelet, hint), Some(Reason::KubeletHealthzSilent));
    kubelet.apply(Sign::ProcessState(PID, 'D'), at(40_000));
    assert_eq!(reason(&kubelet, hint), Some(Reason::KubeletHung));
    // It answers once, which one that starves does now and then.
    kubelet.apply(Sign::Probed(PID, Probe::Ok), at(40_000));
    assert_eq!(reason(&kubelet, hint), None);
    for _ in 0..4 {
        kubelet.apply(Sign::Probed(PID, Probe::Ok), at(40_000));
    }
    assert_eq!(reason(&kubelet, hint), Some(Reason::KubeletIsHealthy));
}

#[test]
fn a_starved_kubelet_that_answers_once_is_starved_still() {
    let mut kubelet = times_out(STARVING, 'R');
    kubelet.apply(Sign::Probed(PID, Probe::Ok), at(11_000));
    for millis in [12_000, 13_000, 14_000] {
        kubelet.apply(Sign::Probed(PID, Probe::Timeout), at(millis));
        kubelet.apply(Sign::Strain(PID, Strain::default()), at(millis));
    }
    let hint = Some(Reason::KubeletStarved);
    assert_eq!(reason_after(&kubelet, hint, 14_000), hint);
}

#[test]
fn who_does_not_want_to_run_is_not_starved() {
    let well = Some(Reason::KubeletIsHealthy);
    let hung = Some(Reason::KubeletHung);
    assert_eq!(reason_after(&times_out(STARVING, 'T'), well, 10_000), hung);
    // A host without pressure tables, or one that is at ease.
    let kubelet = times_out(Strain::default(), 'D');
    assert_eq!(reason_after(&kubelet, well, 10_000), hung);
}

#[test]
fn a_connection_that_nobody_takes_while_the_host_starves_is_no_firewalls() {
    let unreachable = |strain| {
        let mut kubelet = times_out(strain, 'R');
        for _ in 0..3 {
            kubelet.apply(Sign::Probed(PID, Probe::Unreachable), at(10_000));
        }
        reason_after(&kubelet, Some(Reason::KubeletIsHealthy), 10_000)
    };
    assert_eq!(unreachable(STARVING), Some(Reason::KubeletStarved));
    assert_eq!(
        unreachable(Strain::default()),
        Some(Reason::KubeletHealthzSilent)
    );
}

#[test]
fn a_refused_connection_is_no_starvation() {
    let mut kubelet = times_out(STARVING, 'R');
    for _ in 0..3 {
        kubelet.apply(Sign::Probed(PID, Probe::Refused), at(10_000));
    }
    let well = Some(Reason::KubeletIsHealthy);
    let silent = Some(Reason::KubeletHealthzSilent);
    assert_eq!(reason_after(&kubelet, well, 10_000), silent);
}

#[test]
fn a_hint_is_health_when_a_restart_is_judged() {
    let hint = Some(Reason::KubeletClientCertExpiring);
    let mut kubelet = Kubelet::new("kubelet.service");
    kubelet.apply(running(), at(0));
    kubelet.apply(Sign::Found(Found::One(process(PID))), at(0));
    let url = "http://127.0.0.1:10248/healthz".into();
    kubelet.apply(Sign::Endpoint(PID, Endpoint::Known(url)), at(1));
    kubelet.apply(Sign::Probed(PID, Probe::Refused), at(2));
    assert_eq!(reason_after(&kubelet, hint, 2), None);
    assert_eq!(
        reason_after(&kubelet, None, 2),
        Some(Reason::KubeletStarting)
    );
}
