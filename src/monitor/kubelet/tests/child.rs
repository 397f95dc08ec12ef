//! A kubelet that the main process of its unit has started.

use super::*;
use crate::host::process::ProcessId;

const PARENT: i32 = 700;

impl Story {
    /// The unit's main process has started a kubelet with pid 812, which answers.
    fn with_child() -> Self {
        let mut story = Self::new(running(PARENT));
        story.open(PARENT, Uptime::ZERO);
        story.starts(812);
        story.probe(812, Probe::Healthy);
        story.reports(Status::True, Reason::KubeletIsHealthy);
        story
    }

    fn starts(&mut self, pid: i32) {
        self.see(Observation::ChildStarted(PARENT, ProcessId { pid, start_ticks: 1 }));
    }

    fn ends(&mut self, pid: i32) {
        self.see(Observation::ChildExited(pid));
        self.probe(PARENT, Probe::Refused);
    }
}

#[test]
fn one_end_that_the_parent_follows_changes_nothing_and_three_are_a_loop() {
    let mut story = Story::with_child();
    for pid in [812, 813] {
        story.ends(pid);
        story.keeps_what_is_shown();
        story.wait(Duration::from_secs(5));
        story.starts(pid + 1);
        story.keeps_what_is_shown();
        story.probe(pid + 1, Probe::Healthy);
        story.reports(Status::True, Reason::KubeletIsHealthy);
    }
    story.ends(814);
    let message = story.reports(Status::False, Reason::KubeletCrashLooping);
    assert!(
        message.contains("3 times within 5 minutes; kubelet pid 814, which pid 700 of kubelet.service"),
        "{message}"
    );
    story.starts(815);
    story.probe(815, Probe::Healthy);
    story.reports(Status::True, Reason::KubeletIsHealthy);
}

#[test]
fn an_end_that_nothing_follows_is_a_crash() {
    let mut story = Story::with_child();
    story.ends(812);
    assert!(story.kubelet.child.deadline(story.now).is_some());
    story.wait(Duration::from_secs(30));
    let message = story.reports(Status::False, Reason::KubeletCrashed);
    assert!(message.ends_with("has ended, and none that answers has followed"), "{message}");
    story.starts(813);
    story.keeps_what_is_shown();
}

#[test]
fn an_oom_kill_is_shown_whether_its_record_comes_before_or_after_the_end() {
    let kill = |pid| OomKill { pid, name: "kubelet".into(), cgroup: None, memory: OomScope::Host };
    for comes_first in [true, false] {
        let mut story = Story::with_child();
        if comes_first {
            story.happens(ServiceEvent::OomKill(kill(812)));
            story.happens(ServiceEvent::OomKill(kill(9)));
            story.ends(812);
        } else {
            story.ends(812);
            story.happens(ServiceEvent::OomKill(kill(812)));
        }
        let message = story.reports(Status::False, Reason::KubeletOOMKilled);
        assert!(message.contains("pid 812"), "{message}");
        story.happens(ServiceEvent::OomKill(kill(9)));
        story.reports(Status::False, Reason::KubeletOOMKilled);
    }
}

#[test]
fn an_oom_kill_of_another_program_with_its_pid_is_not_its() {
    let mut story = Story::with_child();
    let kill = OomKill { pid: 812, name: "java".into(), cgroup: None, memory: OomScope::Host };
    story.happens(ServiceEvent::OomKill(kill));
    story.ends(812);
    story.keeps_what_is_shown();
}

#[test]
fn the_child_is_sampled_and_the_end_of_the_parent_is_the_units() {
    let mut story = Story::with_child();
    let stopped = Sample { state: 'T', ..Sample::default() };
    story.fail(PARENT, &Probe::TimedOut, &stopped);
    story.reports(Status::True, Reason::KubeletIsHealthy);
    story.fail(812, &Probe::TimedOut, &stopped);
    let message = story.reports(Status::False, Reason::KubeletHung);
    assert!(message.contains("kubelet pid 812"), "{message}");

    let mut story = Story::with_child();
    story.all(job(JobKind::Stop));
    story.ends(812);
    story.happens(ServiceEvent::Exited(PARENT));
    story.reports(Status::Unknown, Reason::KubeletStoppedByOperator);
    assert_eq!(story.kubelet.process(), None);
}

#[test]
fn a_loop_is_shown_at_once_after_a_restart_of_the_unit_too() {
    let mut story = Story::with_child();
    story.all(job(JobKind::Restart));
    story.happens(ServiceEvent::Exited(PARENT));
    story.happens(changed(running(PARENT + 1)));
    story.happens(opened(PARENT + 1, "kubelet.service", story.now));
    story.happens(job_removed("done"));
    story.keeps_what_is_shown();
    for pid in [812, 813, 814] {
        story.see(Observation::ChildStarted(PARENT + 1, ProcessId { pid, start_ticks: 2 }));
        story.see(Observation::ChildExited(pid));
    }
    story.reports(Status::False, Reason::KubeletCrashLooping);
}
