//! The kubelet's client certificate: expired, or about to expire and not renewed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::condition::{Finding, Reason, Uptime, View};
use crate::host::credential::ClientCertificate;

/// A certificate is about to expire in this time before its end, or in the last tenth of its life if that is shorter: the kubelet renews it
/// when 70 to 90 % are over (`k8s.io/client-go/util/certificate`).
const EXPIRING: SignedDuration = SignedDuration::from_hours(7 * 24);
const LAST_PART: i32 = 10;
/// How often it is read, and how often once it has expired.
pub(super) const READ_EVERY: Duration = Duration::from_mins(10);
const READ_EVERY_EXPIRED: Duration = Duration::from_secs(30);

/// A certificate as it was last read.
#[derive(Debug)]
pub(super) struct Certificate {
    certificate: ClientCertificate,
    read_at: Uptime,
}

impl Certificate {
    pub(super) fn new(certificate: ClientCertificate, read_at: Uptime) -> Self {
        Self { certificate, read_at }
    }

    /// After which time it is to be read again: soon once it has expired.
    pub(super) fn read_again_after(&self, time: Option<Timestamp>) -> Duration {
        let left = time.map(|time| self.certificate.valid_until.duration_since(time));
        // One that has expired has less than no time left.
        let left = left.map_or(READ_EVERY, |left| left.try_into().unwrap_or_default());
        left.clamp(READ_EVERY_EXPIRED, READ_EVERY)
    }

    /// Adds what is wrong with it to what else is seen of the kubelet. `time` is the earlier of the host's and the API server's time, so
    /// that one wrong clock is no fault; none while the API server's is not known.
    pub(super) fn add_to(&self, view: &mut View, time: Option<Timestamp>, now: Uptime) {
        if let View::Seen { findings, .. } = view {
            findings.extend(time.and_then(|time| self.finding(time, now)));
        }
    }

    fn finding(&self, time: Timestamp, now: Uptime) -> Option<Finding> {
        let ClientCertificate { file, valid_from, valid_until, .. } = &self.certificate;
        // One that had not expired when it was read may have been renewed since.
        if time.checked_sub(now - self.read_at).ok()? > *valid_until {
            let message = format!(
                "the kubelet's client certificate in {file} expired at {valid_until}, so the API server refuses the kubelet; \
                 renew it or join the node again"
            );
            return Some(Finding::new(Reason::KubeletClientCertExpired, message));
        }
        let ahead = EXPIRING.min(valid_until.duration_since(*valid_from) / LAST_PART);
        if time < valid_until.checked_sub(ahead).ok()? {
            return None;
        }
        let message =
            format!("the kubelet's client certificate in {file} expires at {valid_until} and was not renewed");
        Some(Finding::new(Reason::KubeletClientCertExpiring, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;

    fn time(secs: i64) -> Timestamp {
        Timestamp::from_second(secs).unwrap()
    }

    /// A certificate that is valid for so long from 1970 on, read at that uptime.
    fn certificate(life: i64, read_at: u64) -> Certificate {
        let certificate = ClientCertificate {
            file: "/pki/current.pem".into(),
            node: None,
            valid_from: time(0),
            valid_until: time(life),
        };
        Certificate::new(certificate, Uptime::from_secs(read_at))
    }

    /// What is found if it is read at this time.
    fn found(life: i64, now: i64) -> Option<Reason> {
        certificate(life, 50).finding(time(now), Uptime::from_secs(50)).map(|finding| finding.reason)
    }

    #[test]
    fn a_certificate_of_a_year_expires_a_week_ahead_and_one_of_an_hour_six_minutes() {
        for (life, ahead) in [(365 * DAY, 7 * DAY), (30 * DAY, 3 * DAY), (HOUR, HOUR / 10)] {
            assert_eq!(found(life, life - ahead - 1), None);
            assert_eq!(found(life, life - ahead), Some(Reason::KubeletClientCertExpiring));
            assert_eq!(found(life, life), Some(Reason::KubeletClientCertExpiring));
            assert_eq!(found(life, life + 1), Some(Reason::KubeletClientCertExpired));
        }
    }

    #[test]
    fn one_that_has_expired_since_it_was_read_is_read_again_first() {
        let certificate = certificate(HOUR, 50);
        let (end, uptime) = (time(HOUR + 10), Uptime::from_secs(100)); // 40 s before its end it was read
        assert_eq!(certificate.finding(end, uptime).unwrap().reason, Reason::KubeletClientCertExpiring);
        let waits =
            [HOUR - 900, HOUR - 40, HOUR + 10].map(|now| certificate.read_again_after(Some(time(now))).as_secs());
        assert_eq!(waits, [600, 40, 30]);
    }

    #[test]
    fn without_the_time_of_both_clocks_nothing_is_found_and_what_else_is_seen_stays() {
        let certificate = certificate(HOUR, 50);
        let now = Uptime::from_secs(50);
        let mut view = View::healthy("it answers");
        certificate.add_to(&mut view, None, now);
        assert_eq!(view, View::healthy("it answers"));
        certificate.add_to(&mut view, Some(time(2 * HOUR)), now);
        let View::Seen { healthy, findings } = view else { panic!() };
        assert_eq!((healthy.as_str(), findings[0].reason), ("it answers", Reason::KubeletClientCertExpired));
        let mut stopped = View::Excused(Finding::new(Reason::KubeletStoppedByOperator, "stopped"));
        let before = stopped.clone();
        certificate.add_to(&mut stopped, Some(time(2 * HOUR)), now);
        assert_eq!(stopped, before);
    }
}
