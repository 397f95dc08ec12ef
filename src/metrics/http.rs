//! The little of HTTP/1.1 that a scrape needs: one request's head is read, one answer is written, the connection is closed.

use super::Format;

/// A longer head is refused. (curl sends 80 bytes, Prometheus 500.)
pub const MAX_HEAD_BYTES: usize = 4096;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// The head is not complete yet.
    More,
    /// The metrics.
    Metrics {
        /// How they are to be spelled.
        format: Format,
        /// Only the answer's head, please.
        head_only: bool,
    },
    /// Something that is not here, or no HTTP at all.
    Refused(Refusal),
}

/// Why there are no metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// That is no request.
    BadRequest,
    /// There is nothing but `/metrics`.
    NotFound,
    /// There is nothing but `GET` and `HEAD`.
    NotAllowed,
    /// The head is too long.
    TooLarge,
    /// The loop did not answer in time.
    Unavailable,
}

impl Refusal {
    fn line(self) -> &'static str {
        match self {
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::NotAllowed => "405 Method Not Allowed",
            Self::TooLarge => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable",
        }
    }
}

/// What the bytes so far ask for.
pub fn read(bytes: &[u8]) -> Asked {
    let ends = |end: &[u8]| bytes.windows(end.len()).any(|window| window == end);
    if !ends(b"\r\n\r\n") && !ends(b"\n\n") {
        return if bytes.len() >= MAX_HEAD_BYTES {
            Asked::Refused(Refusal::TooLarge)
        } else {
            Asked::More
        };
    }
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    if words.next().is_some() || !version.is_some_and(|version| version.starts_with("HTTP/1.")) {
        return Asked::Refused(Refusal::BadRequest);
    }
    let path = target.unwrap_or_default().split('?').next();
    if path != Some("/metrics") {
        return Asked::Refused(Refusal::NotFound);
    }
    let head_only = match method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Asked::Refused(Refusal::NotAllowed),
    };
    Asked::Metrics {
        format: format(lines),
        head_only,
    }
}

/// OpenMetrics, unless the scraper takes the older text and does not say that it takes OpenMetrics.
fn format<'a>(headers: impl Iterator<Item = &'a str>) -> Format {
    let accepts = headers
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("accept"));
    let (mut text, mut open_metrics) = (false, false);
    for (_, value) in accepts {
        let value = value.to_ascii_lowercase();
        text |= value.contains("text/plain");
        open_metrics |= value.contains("application/openmetrics-text");
    }
    if text && !open_metrics {
        Format::Text
    } else {
        Format::OpenMetrics
    }
}

/// The head of an answer that brings so many bytes of metrics.
pub fn head(format: Format, length: usize) -> String {
    answer_head("200 OK", format.content_type(), length)
}

/// An answer that brings none.
pub fn refusal(refusal: Refusal) -> String {
    let line = refusal.line();
    let body = format!("{line}: GET /metrics is all there is\n");
    answer_head(line, "text/plain; charset=utf-8", body.len()) + &body
}

fn answer_head(status: &str, content_type: &str, length: usize) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(text: &str) -> Asked {
        read(text.as_bytes())
    }

    fn metrics(format: Format) -> Asked {
        Asked::Metrics {
            format,
            head_only: false,
        }
    }

    #[test]
    fn what_scrapers_send_is_understood() {
        let curl = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n";
        assert_eq!(asked(curl), metrics(Format::OpenMetrics));
        let prometheus = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9717\r\nUser-Agent: Prometheus/3.5.0\r\nAccept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\nAccept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n";
        assert_eq!(asked(prometheus), metrics(Format::OpenMetrics));
        let old = "GET /metrics?x=y HTTP/1.0\naccept: text/plain;version=0.0.4\n\n";
        assert_eq!(asked(old), metrics(Format::Text));
        let head = Asked::Metrics {
            format: Format::OpenMetrics,
            head_only: true,
        };
        assert_eq!(asked("HEAD /metrics HTTP/1.1\r\n\r\n"), head);
    }

    #[test]
    fn a_head_that_is_not_complete_is_waited_for() {
        let whole = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(asked(&whole[..end]), Asked::More, "{end}");
        }
        let endless = "x".repeat(MAX_HEAD_BYTES);
        assert_eq!(asked(&endless), Asked::Refused(Refusal::TooLarge));
    }

    #[test]
    fn everything_else_is_refused() {
        for (text, refusal) in [
            ("GET / HTTP/1.1\r\n\r\n", Refusal::NotFound),
            ("GET /metrics/ HTTP/1.1\r\n\r\n", Refusal::NotFound),
            ("POST /metrics HTTP/1.1\r\n\r\n", Refusal::NotAllowed),
            ("GET /metrics\r\n\r\n", Refusal::BadRequest),
            ("GET /metrics HTTP/2\r\n\r\n", Refusal::BadRequest),
            ("GET  /metrics HTTP/1.1\r\n\r\n", Refusal::BadRequest),
            ("\r\n\r\n", Refusal::BadRequest),
        ] {
            assert_eq!(asked(text), Asked::Refused(refusal), "{text:?}");
        }
        let answer = refusal(Refusal::NotFound);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 404 "));
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), tail in any::<bool>()) {
            let mut bytes = bytes;
            if tail {
                bytes.extend_from_slice(b"\r\n\r\n");
            }
            let asked = read(&bytes);
            prop_assert!(!tail || asked != Asked::More);
        }
    }
}
