//! The client certificate with which the kubelet speaks to the API server: expired, not valid yet, or about to expire and
//! not renewed. Told beside what the kubelet's own check says.
//!
//! The helper reads it, because its folder is root's; rarely, and again whenever a limit has been reached: what is on the
//! disk by then may be another one. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::{Check, Question, Reading, Spec};
use crate::{
    clock::Now,
    config::Settings,
    health::{ConditionType, Finding, Reason, Status},
    helper::protocol::ClientCertificate,
};

/// The registry's row.
pub const SPEC: Spec = Spec {
    id: "certificate",
    condition: ConditionType::KubeletHealthy,
    doc: "The client certificate of the kubelet's kubeconfig, the renewed one too.",
};

/// How long a kubelet is waited for before its kubeconfig is looked for in the well-known places.
const SETTLE: Duration = Duration::from_secs(5);
/// How often it is read while all is well: whoever puts another one there restarts the kubelet, which brings the next
/// reading forward.
const CALM: Duration = Duration::from_mins(30);
/// How often while it is not, or could not be read.
const ALERT: Duration = Duration::from_mins(1);
/// What is left of its life when it counts as about to expire, whatever the configured time: the kubelet renews its
/// certificate when 70 to 90 % are over (k8s.io/client-go, util/certificate), so that a short-lived one is not always about
/// to expire.
const LAST_PART: i64 = 10;
/// Two clocks that are no further apart agree.
const NEAR_SECS: u64 = 60;

/// What is known of the certificate.
#[derive(Debug)]
pub struct Certificate {
    /// How long ahead its end is told.
    ahead_secs: i64,
    pid: Option<i32>,
    /// Whether anything was read while a kubelet ran: then a kubeconfig of another place is a leftover.
    is_named: bool,
    due_at: Duration,
    /// The API server's time when it was read, if it is known.
    cluster: Option<Timestamp>,
    has_waited: bool,
    findings: Vec<Finding>,
}

/// What its dates come to at one moment.
#[derive(Debug, PartialEq, Eq)]
struct Judged {
    finding: Finding,
    /// In how many seconds its dates come to something else.
    limit_in_secs: Option<i64>,
}

impl Certificate {
    /// Nothing is known yet.
    pub fn new(settings: &Settings) -> Self {
        let hours = settings.number("kubelet", "certificate_expiring_hours");
        Self {
            ahead_secs: i64::from(hours) * 3600,
            pid: None,
            is_named: false,
            due_at: Duration::ZERO,
            cluster: None,
            has_waited: false,
            findings: Vec::new(),
        }
    }

    fn read(&mut self, read: &Result<Option<ClientCertificate>, String>, now: Now) {
        let Ok(certificate) = read else {
            // Failing to know is not failing, and clears nothing.
            self.due_at = now.uptime + ALERT;
            return;
        };
        self.is_named |= self.pid.is_some();
        let judged = match certificate {
            Some(certificate) => {
                let clocks = (now.wall.as_second(), self.cluster.map(Timestamp::as_second));
                judge_by_both(certificate, self.ahead_secs, clocks)
            }
            None => Judged {
                finding: nothing("the kubelet shows no certificate to the API server"),
                limit_in_secs: None,
            },
        };
        let every = match judged.finding.reason {
            Reason::KubeletNothingBeside => CALM,
            _ => ALERT,
        };
        // Dates have whole seconds: one more, and it has passed.
        let limit = judged
            .limit_in_secs
            .and_then(|secs| u64::try_from(secs + 1).ok());
        let limit = limit.map(Duration::from_secs);
        self.due_at = now.uptime + limit.map_or(every, |limit| limit.min(every));
        self.findings = vec![judged.finding];
    }
}

impl Check for Certificate {
    fn spec(&self) -> Spec {
        SPEC
    }

    fn is_beside(&self) -> bool {
        true
    }

    fn take(&mut self, reading: &Reading, now: Now) {
        match reading {
            Reading::Kubelet(process) => {
                self.pid = process.as_ref().map(|process| process.pid);
                if self.pid.is_some() {
                    self.due_at = now.uptime;
                }
            }
            Reading::ClusterTime(time) => self.cluster = *time,
            Reading::Certificate(read) => self.read(read, now),
            _ => {}
        }
    }

    fn due_at(&self) -> Option<Duration> {
        Some(self.due_at)
    }

    fn turn(&mut self, now: Now) -> Option<Question> {
        if self.pid.is_none() && (self.is_named || !self.has_waited) {
            self.due_at = now.uptime + if self.is_named { ALERT } else { SETTLE };
            self.has_waited = true;
            return None;
        }
        self.due_at = now.uptime + ALERT;
        Some(Question::Certificate)
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

fn nothing(message: &str) -> Finding {
    Finding {
        reason: Reason::KubeletNothingBeside,
        message: message.to_owned(),
    }
}

/// Its dates by this machine's clock and by the API server's: one alone may be wrong.
fn judge_by_both(
    certificate: &ClientCertificate,
    ahead_secs: i64,
    (here, cluster): (i64, Option<i64>),
) -> Judged {
    let is_bad = |judged: &Judged| judged.finding.reason.status() == Status::False;
    let by_node = judge(certificate, ahead_secs, here);
    let Some(there) = cluster else {
        if !is_bad(&by_node) {
            return by_node;
        }
        return doubtful(
            certificate,
            "this machine's clock",
            "the API server's is not known",
        );
    };
    let by_cluster = judge(certificate, ahead_secs, there);
    let limits = [by_node.limit_in_secs, by_cluster.limit_in_secs];
    let finding = match (is_bad(&by_node), is_bad(&by_cluster)) {
        (false, false) => by_node.finding,
        (true, true) if by_node.finding.reason == by_cluster.finding.reason => by_node.finding,
        // It is about to be so by both.
        (true, false) if here.abs_diff(there) <= NEAR_SECS => by_cluster.finding,
        (false, true) if here.abs_diff(there) <= NEAR_SECS => by_node.finding,
        (true, _) => {
            let other = "the API server's does not say so";
            doubtful(certificate, "this machine's clock", other).finding
        }
        (false, true) => {
            let other = "this machine's does not say so";
            doubtful(certificate, "the API server's clock", other).finding
        }
    };
    Judged {
        finding,
        limit_in_secs: limits.into_iter().flatten().min(),
    }
}

fn doubtful(certificate: &ClientCertificate, by: &str, other: &str) -> Judged {
    let ClientCertificate {
        file,
        not_before_secs: from,
        not_after_secs: to,
    } = certificate;
    let message = format!(
        "the kubelet's client certificate {file} is valid from {} to {}, and not now by {by}; {other}: a clock may be wrong",
        date(*from),
        date(*to)
    );
    Judged {
        finding: Finding {
            reason: Reason::KubeletClientCertDoubtful,
            message,
        },
        limit_in_secs: None,
    }
}

fn judge(certificate: &ClientCertificate, ahead_secs: i64, now: i64) -> Judged {
    let ClientCertificate {
        file,
        not_before_secs: from,
        not_after_secs: to,
    } = certificate;
    let ahead = ahead_secs.min(to.saturating_sub(*from) / LAST_PART).max(0);
    let warn_from = to.saturating_sub(ahead);
    let (reason, message, limit) = if now < *from {
        let message = format!(
            "the kubelet's client certificate {file} is valid from {} on, and neither this machine's clock nor the API \
             server's is there yet: the API server refuses the kubelet",
            date(*from)
        );
        (Reason::KubeletClientCertNotYetValid, message, Some(*from))
    } else if now > *to {
        let message = format!(
            "the kubelet's client certificate {file} expired {}: the API server refuses the kubelet, and the kubelet exits",
            date(*to)
        );
        (Reason::KubeletClientCertExpired, message, None)
    } else if now >= warn_from {
        let message = format!(
            "the kubelet's client certificate {file} expires {} and nothing has renewed it",
            date(*to)
        );
        (Reason::KubeletClientCertExpiring, message, Some(*to))
    } else {
        let message = format!(
            "the kubelet's client certificate is good until {}",
            date(*to)
        );
        (Reason::KubeletNothingBeside, message, Some(warn_from))
    };
    Judged {
        finding: Finding { reason, message },
        limit_in_secs: limit.map(|limit| limit.saturating_sub(now)),
    }
}

fn date(secs: i64) -> String {
    Timestamp::from_second(secs)
        .map_or_else(|_| format!("{secs} s after 1970"), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::kubelet::Process;

    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;

    /// Uptime and wall clock in seconds.
    fn at(secs: i64) -> Now {
        Now {
            uptime: Duration::from_secs(u64::try_from(secs).unwrap()),
            wall: Timestamp::from_second(secs).unwrap(),
        }
    }

    fn good(from: i64, to: i64) -> ClientCertificate {
        ClientCertificate {
            file: "/pki/current.pem".to_owned(),
            not_before_secs: from,
            not_after_secs: to,
        }
    }

    fn kubelet(pid: Option<i32>) -> Reading {
        Reading::Kubelet(pid.map(|pid| Process {
            pid,
            started: Duration::ZERO,
        }))
    }

    struct Told(Certificate);

    impl Told {
        fn new() -> Self {
            let mut certificate = Certificate::new(&Settings::default());
            certificate.take(&kubelet(Some(7)), at(0));
            Self(certificate)
        }

        /// Reads it at that moment; what is found, and when it wants to read again.
        fn read(&mut self, certificate: ClientCertificate, secs: i64) -> (Reason, u64) {
            assert_eq!(self.0.turn(at(secs)), Some(Question::Certificate));
            let cluster = Reading::ClusterTime(Some(at(secs).wall));
            self.0.take(&cluster, at(secs));
            self.0
                .take(&Reading::Certificate(Ok(Some(certificate))), at(secs));
            let due = self.0.due_at().unwrap().as_secs();
            (self.0.findings()[0].reason, due)
        }
    }

    #[test]
    fn a_year_is_told_a_week_ahead_and_an_hour_six_minutes() {
        let week = Certificate::new(&Settings::default()).ahead_secs;
        for (life, ahead) in [
            (365 * DAY, 7 * DAY),
            (70 * DAY, 7 * DAY),
            (30 * DAY, 3 * DAY),
            (DAY, DAY / 10),
            (HOUR, HOUR / 10),
        ] {
            let reason = |now| judge(&good(0, life), week, now).finding.reason;
            assert_eq!(reason(life - ahead - 1), Reason::KubeletNothingBeside);
            assert_eq!(reason(life - ahead), Reason::KubeletClientCertExpiring);
            assert_eq!(reason(life), Reason::KubeletClientCertExpiring);
            assert_eq!(reason(life + 1), Reason::KubeletClientCertExpired);
        }
        let early = judge(&good(100, 200), DAY, 99);
        assert_eq!(early.finding.reason, Reason::KubeletClientCertNotYetValid);
        assert_eq!(early.limit_in_secs, Some(1));
    }

    #[test]
    fn it_is_read_when_a_limit_is_reached_and_rarely_before() {
        let mut told = Told::new();
        let (reason, due) = told.read(good(0, 100 * DAY), 10);
        assert_eq!((reason, due), (Reason::KubeletNothingBeside, 10 + 1800));
        // A limit that is nearer than that is waited for.
        let warn_from = 93 * DAY;
        let (_, due) = told.read(good(0, 100 * DAY), warn_from - 60);
        assert_eq!(due, u64::try_from(warn_from + 1).unwrap());
        let (reason, _) = told.read(good(0, 100 * DAY), warn_from + 1);
        assert_eq!(reason, Reason::KubeletClientCertExpiring);
        let (_, due) = told.read(good(0, 100 * DAY), 100 * DAY - 5);
        assert_eq!(due, u64::try_from(100 * DAY + 1).unwrap());
        let (reason, _) = told.read(good(0, 100 * DAY), 100 * DAY + 1);
        assert_eq!(reason, Reason::KubeletClientCertExpired);
        // It was renewed at last.
        let (reason, _) = told.read(good(100 * DAY, 200 * DAY), 100 * DAY + 61);
        assert_eq!(reason, Reason::KubeletNothingBeside);
    }

    #[test]
    fn not_to_have_read_it_says_nothing_and_clears_nothing() {
        let mut told = Told::new();
        let away = Reading::Certificate(Err("away".to_owned()));
        told.0.take(&away, at(1));
        assert_eq!(told.0.findings(), []);
        told.read(good(0, 10), 20);
        told.0.take(&away, at(100));
        assert_eq!(
            told.0.findings()[0].reason,
            Reason::KubeletClientCertExpired
        );
        assert_eq!(told.0.due_at(), Some(Duration::from_secs(160)));
        // That there is none any more is knowledge.
        told.0.take(&Reading::Certificate(Ok(None)), at(160));
        assert_eq!(told.0.findings()[0].reason, Reason::KubeletNothingBeside);
    }

    #[test]
    fn the_places_are_searched_only_if_no_kubelet_has_named_its_own() {
        let mut certificate = Certificate::new(&Settings::default());
        assert_eq!(certificate.turn(at(0)), None, "a kubelet is waited for");
        assert_eq!(certificate.turn(at(5)), Some(Question::Certificate));
        certificate.take(&kubelet(Some(7)), at(6));
        assert_eq!(certificate.due_at(), Some(Duration::from_secs(6)));
        assert_eq!(certificate.turn(at(6)), Some(Question::Certificate));
        let time = Reading::ClusterTime(Some(at(6).wall));
        certificate.take(&time, at(6));
        certificate.take(&Reading::Certificate(Ok(Some(good(0, 5)))), at(6));
        certificate.take(&kubelet(None), at(7));
        assert_eq!(certificate.turn(at(70)), None);
        assert_eq!(
            certificate.findings()[0].reason,
            Reason::KubeletClientCertExpired
        );
    }

    #[test]
    fn one_clock_alone_makes_no_certificate_bad() {
        use Reason::{
            KubeletClientCertDoubtful as Doubtful, KubeletClientCertExpired as Expired,
            KubeletClientCertExpiring as Expiring, KubeletClientCertNotYetValid as Early,
            KubeletNothingBeside as Well,
        };
        let (from, to) = (1000, 100_000);
        for (here, there, expected) in [
            (50_000, Some(50_000), Well),
            (50_000, None, Well),
            (to + 1, Some(to + 1), Expired),
            (from - 1, Some(from - 1), Early),
            // The battery is dead, or the clock was set to another year.
            (to + 5000, Some(50_000), Doubtful),
            (0, Some(50_000), Doubtful),
            (0, Some(to + 5000), Doubtful),
            // The API server's is the one that is wrong, or ours says that all is well and is not.
            (50_000, Some(to + 5000), Doubtful),
            (50_000, Some(0), Doubtful),
            (to + 1, None, Doubtful),
            (from - 1, None, Doubtful),
            // They agree but for the time that an answer takes.
            (to + 1, Some(to - 1), Expiring),
            (to - 1, Some(to + 1), Expiring),
            (from - 1, Some(from + 1), Well),
        ] {
            let judged = judge_by_both(&good(from, to), HOUR, (here, there));
            assert_eq!(judged.finding.reason, expected, "{here} {there:?}");
        }
        let judged = judge_by_both(&good(from, to), HOUR, (to + 1, Some(to - 1)));
        assert_eq!(judged.limit_in_secs, Some(1), "until it is so by both");
    }

    #[test]
    fn the_same_state_is_the_same_sentence() {
        let message = |now| judge(&good(0, 100 * DAY), DAY, now).finding.message;
        assert_eq!(message(99 * DAY), message(99 * DAY + 500));
        assert_eq!(message(101 * DAY), message(102 * DAY));
        assert!(
            message(101 * DAY).contains("1970-04-11T00:00:00Z"),
            "{}",
            message(101 * DAY)
        );
    }
}
