//! Stalls as they come and go, told second by second.

use super::*;
use crate::checks::kubelet::Process;

const PID: i32 = 7;
/// The wall clock when the uptime was nought.
const EPOCH: i64 = 1_800_000_000;

fn at(secs: u64) -> Now {
    Now {
        uptime: Duration::from_secs(secs),
        wall: wall(i64::try_from(secs).unwrap()),
    }
}

fn wall(secs: i64) -> Timestamp {
    Timestamp::from_second(EPOCH + secs).unwrap()
}

fn renewed_at(secs: i64) -> Renewal {
    Renewal {
        renewed: wall(secs),
        duration: Duration::from_secs(40),
    }
}

const WELL: Sockets = Sockets {
    open: 2,
    stalled: 0,
    sending_again: 0,
};
const STALLS: Sockets = Sockets {
    open: 2,
    stalled: 1,
    sending_again: 1,
};

/// A kubelet, both ends well, its connection as it is told.
struct Story {
    check: Lease,
    sockets: Sockets,
    /// When the Lease was renewed last, on the wall clock after [`EPOCH`]; or why it cannot be read.
    lease: Result<i64, Unread>,
    /// When the Lease was read.
    looks: Vec<u64>,
    sockets_read: u32,
    /// What the clock was set by, and when.
    clock: i64,
}

impl Story {
    fn new() -> Self {
        let mut check = Lease::new(&Settings::default());
        let process = Process {
            pid: PID,
            started: Duration::ZERO,
        };
        check.take(&Reading::Kubelet(Some(process)), at(0));
        let mut story = Self {
            check,
            sockets: WELL,
            lease: Ok(0),
            looks: Vec::new(),
            sockets_read: 0,
            clock: 0,
        };
        story.sight(0, |sight| {
            (sight.healthz, sight.api_answers) = (Healthz::Answers, true);
            sight.heartbeat = Some(wall(0));
        });
        story
    }

    fn sight(&mut self, secs: u64, change: impl FnOnce(&mut Sight)) {
        let mut sight = self.check.sight;
        change(&mut sight);
        self.check.take(&Reading::Sight(sight), at(secs));
    }

    /// Lets the seconds pass; each is told to `each` first.
    fn pass(&mut self, secs: std::ops::Range<u64>, mut each: impl FnMut(&mut Self, u64)) {
        for second in secs {
            each(self, second);
            let now = Now {
                wall: wall(i64::try_from(second).unwrap() + self.clock),
                ..at(second)
            };
            while self.check.due_at().is_some_and(|at| at <= now.uptime) {
                let Some(question) = self.check.turn(now) else {
                    break;
                };
                let reading = if question == Question::Sockets {
                    self.sockets_read += 1;
                    Reading::Sockets(Some(self.sockets))
                } else {
                    assert_eq!(question, Question::Lease);
                    self.looks.push(second);
                    Reading::Lease(self.lease.map(renewed_at))
                };
                self.check.take(&reading, now);
            }
        }
    }

    /// The kubelet renews its Lease every ten seconds.
    fn renews(&mut self, second: u64) {
        if second.is_multiple_of(10) {
            self.lease = Ok(i64::try_from(second).unwrap() + self.clock);
        }
    }

    fn is_told(&self) -> bool {
        self.check.is_told()
    }
}

#[test]
fn a_healthy_hour_reads_no_lease_and_few_sockets() {
    let mut story = Story::new();
    story.pass(0..3600, |story, second| {
        story.renews(second);
        if second.is_multiple_of(300) {
            story.sight(second, |sight| {
                sight.heartbeat = Some(wall(second.cast_signed()));
            });
        }
    });
    assert!(story.looks.is_empty(), "{:?}", story.looks);
    assert!(story.sockets_read <= 360, "{}", story.sockets_read);
    assert_eq!(story.check.findings(), []);
}

#[test]
fn a_stall_is_told_before_the_control_plane_can_and_ends() {
    // Whenever in the kubelet's ten seconds it begins.
    for cut in 100..110 {
        let mut story = Story::new();
        let mut told_at = None;
        story.pass(0..200, |story, second| {
            if second < cut {
                story.renews(second);
            } else if second >= cut + 5 {
                story.sockets = STALLS;
            }
            if told_at.is_none() && story.is_told() {
                told_at = Some(second);
            }
        });
        let late = told_at.unwrap() - cut;
        println!("cut at {cut}: told after {late} s");
        assert!((15..=40).contains(&late), "{late} s after the cut at {cut}");
        let finding = &story.check.findings()[0];
        assert_eq!(finding.reason, Reason::KubeletAPIConnectionStalled);
        let last = wall(if cut == 100 { 90 } else { 100 }).to_string();
        assert!(finding.message.contains(&last), "{finding:?}");
        let looks = story.looks.len();
        assert!(looks <= 16, "{looks} looks");
        story.sockets = WELL;
        story.pass(200..240, Story::renews);
        assert_eq!(
            story.check.findings()[0].reason,
            Reason::KubeletNothingBeside
        );
    }
}

#[test]
fn a_foreign_socket_that_stalls_costs_a_few_looks() {
    let mut story = Story::new();
    story.sockets = STALLS;
    story.pass(0..3600, Story::renews);
    assert!(!story.is_told());
    let looks = story.looks.len();
    assert!(looks <= 120, "{looks} looks an hour");
}

#[test]
fn a_clock_that_is_set_makes_no_stall_and_hides_none() {
    for step in [3600, -3600] {
        let mut story = Story::new();
        story.sockets = STALLS; // so that the Lease is looked at all the time
        story.pass(0..300, |story, second| {
            if second == 104 {
                story.clock = step;
            }
            story.renews(second);
            assert!(!story.is_told(), "{second}: {story:?}", story = story.check);
        });
        // Now it really stalls.
        story.pass(300..500, |_, _| {});
        assert!(story.is_told(), "step of {step}");
    }
}

#[test]
fn while_an_end_is_away_nothing_is_asked_and_nothing_told() {
    for end in [
        (|sight| sight.api_answers = false) as fn(&mut Sight),
        |sight| sight.healthz = Healthz::Unknown,
    ] {
        let mut story = Story::new();
        story.pass(0..100, Story::renews);
        let (looks, sockets) = (story.looks.len(), story.sockets_read);
        story.sight(100, end);
        story.sockets = STALLS;
        story.pass(100..300, |_, _| {});
        assert!(!story.is_told());
        assert_eq!((story.looks.len(), story.sockets_read), (looks, sockets));
    }
}

#[test]
fn of_a_kubelet_that_does_not_answer_the_lease_is_read_and_not_judged_here() {
    let mut story = Story::new();
    story.pass(0..100, Story::renews);
    story.sight(100, |sight| {
        sight.healthz = Healthz::Silent;
    });
    let sockets = story.sockets_read;
    story.pass(100..3700, |_, _| {});
    assert!(!story.is_told());
    assert_eq!(story.looks[0], 100, "at once");
    let looks = story.looks.len();
    assert!((240..=260).contains(&looks), "{looks} looks an hour");
    assert_eq!(story.sockets_read, sockets);
    // One that may not be read is left alone for an hour; without the API server nobody asks.
    story.lease = Err(Unread::Refused);
    story.pass(3700..4700, |_, _| {});
    assert!(story.looks.len() <= looks + 1);
    let looks = story.looks.len();
    story.sight(8000, |sight| sight.api_answers = false);
    story.pass(8000..8100, |_, _| {});
    assert_eq!(story.looks.len(), looks);
}

#[test]
fn an_outage_for_both_is_not_held_against_the_kubelet() {
    let mut story = Story::new();
    story.pass(0..100, Story::renews);
    story.sight(105, |sight| sight.api_answers = false);
    story.sockets = STALLS;
    story.pass(105..300, |_, _| {});
    // We are back at once, the kubelet some time later.
    story.sight(300, |sight| sight.api_answers = true);
    story.pass(300..345, |story, _| assert!(!story.is_told()));
    story.sockets = WELL;
    story.pass(345..500, |story, second| {
        story.renews(second);
        assert!(!story.is_told());
    });
    // It does not come back: that is told.
    story.sight(500, |sight| sight.api_answers = false);
    story.sight(501, |sight| sight.api_answers = true);
    story.sockets = STALLS;
    story.pass(501..600, |_, _| {});
    assert!(story.is_told());
}

#[test]
fn a_connection_that_is_gone_is_suspicious_if_there_was_one() {
    let mut story = Story::new();
    story.pass(0..100, Story::renews);
    story.sockets = Sockets::default();
    story.pass(100..200, |_, _| {});
    assert!(story.is_told());
    // Behind a proxy there never was one.
    let mut story = Story::new();
    story.sockets = Sockets::default();
    story.pass(0..300, |_, _| {});
    assert!(story.looks.is_empty(), "{:?}", story.looks);
    // Until somebody else says that the kubelet is silent.
    story.sight(300, |sight| sight.is_given_up = true);
    story.pass(300..340, |_, _| {});
    assert!(story.is_told());
}

#[test]
fn a_node_without_a_sign_of_the_kubelet_is_looked_at() {
    let mut story = Story::new();
    story.pass(0..600, |story, second| {
        if second < 100 {
            story.renews(second);
        }
    });
    assert!(story.is_told());
    assert!(story.looks[0] >= SILENT.as_secs(), "{:?}", story.looks);
}

#[test]
fn a_refusal_is_asked_again_after_an_hour() {
    let mut story = Story::new();
    story.lease = Err(Unread::Refused);
    story.pass(0..3700, |story, second| {
        story.sockets = if second % 60 < 30 { WELL } else { STALLS };
    });
    assert!(!story.is_told());
    assert!(story.looks.len() <= 2, "{:?}", story.looks);
    // A failure is tried again sooner, ever more slowly.
    let mut story = Story::new();
    (story.lease, story.sockets) = (Err(Unread::Failed), STALLS);
    story.pass(0..600, |_, _| {});
    assert!(story.looks.len() <= 8, "{:?}", story.looks);
}

#[test]
fn another_kubelet_has_another_connection() {
    let mut story = Story::new();
    story.pass(0..100, Story::renews);
    story.sockets = STALLS;
    story.pass(100..200, |_, _| {});
    assert!(story.is_told());
    story.check.take(&Reading::Kubelet(None), at(200));
    assert!(
        !story.is_told(),
        "it has ended, and that is told by another"
    );
    assert_eq!(story.check.due_at(), None);
}

#[test]
fn sockets_stall_when_nothing_comes_back() {
    let idle = TcpSocket {
        is_connecting: false,
        retransmits: 0,
        probes: 0,
        unacknowledged: 0,
        sent_ago: Duration::from_secs(9),
        received_ago: Duration::from_secs(9),
        acknowledged_ago: Duration::from_secs(9),
    };
    let count = |socket| {
        let mut sockets = Sockets::default();
        sockets.count(socket);
        (sockets.open, sockets.stalled, sockets.sending_again)
    };
    assert_eq!(count(idle), (1, 0, 0));
    let lost = TcpSocket {
        retransmits: 1,
        unacknowledged: 1,
        ..idle
    };
    assert_eq!(count(lost), (1, 0, 1));
    let stalled = TcpSocket {
        retransmits: 3,
        ..lost
    };
    assert_eq!(count(stalled), (1, 1, 1));
    let dropped_here = TcpSocket { probes: 3, ..idle };
    assert_eq!(count(dropped_here), (1, 1, 1));
    let opening = TcpSocket {
        is_connecting: true,
        retransmits: 2,
        ..idle
    };
    assert_eq!(count(opening), (0, 1, 0));
}

#[test]
fn an_old_lease_alone_is_no_stall() {
    let mut story = Story::new();
    story.sockets = STALLS;
    story.pass(0..60, Story::renews);
    // The Lease stays; while it is looked at, what made it suspect is over, and the Node is written.
    let mut looks = 0;
    story.pass(60..75, |story, _| looks = story.looks.len());
    assert!(!story.is_told());
    story.sockets = WELL;
    let last = story.check.sockets;
    story.check.sockets(WELL, at(75));
    assert_ne!(last, WELL);
    let old = renewed_at(50);
    for second in [91, 96, 101, 106, 111, 130] {
        story.check.renewal(old, at(second));
        assert!(!story.is_told(), "{second}");
    }
    story.check.sockets(STALLS, at(131));
    for second in [131, 136, 141, 146, 160, 180] {
        story.check.renewal(old, at(second));
    }
    assert!(story.is_told());
    assert!(looks > 0);
    let message = &story.check.findings()[0].message;
    assert!(message.contains("sock_diag"), "{message}");
}
