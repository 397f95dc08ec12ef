//! `GET /metrics` in the OpenMetrics or the older text format, and `GET /healthz`, which answers 200 while the agent runs.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use procfs::process::Process;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::condition::{Condition, ConditionType, Desired, Status};
use crate::facts::{ApiFacts, RequestCounts};
use crate::trouble::{Trouble, Troubles};

/// For one more, the oldest is closed: a slow client holds nobody up.
const MAX_CONNECTIONS: usize = 8;
/// A connection is closed after this time, whether its request has come or not.
const CONNECTION_LASTS: Duration = Duration::from_secs(10);
const BIND_AGAIN_AFTER: Duration = Duration::from_mins(1);
/// Accepting fails when the agent may open no more files: wait, as the next attempt fails as well.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_secs(1);
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
/// In seconds. A kubelet on an idle host answers within two milliseconds.
const PROBE_BUCKETS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

type TransitionLabels = [(&'static str, &'static str); 2];

/// All metrics. Clones count into the same ones.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    /// In seconds.
    pub probe_seconds: Histogram,
    transitions: Family<TransitionLabels, Counter>,
}

impl Metrics {
    /// Metrics of these conditions, requests and troubles as they are at each scrape.
    pub fn new(
        desired: watch::Receiver<Desired>,
        api: watch::Receiver<ApiFacts>,
        requests: RequestCounts,
        troubles: Troubles,
    ) -> Self {
        let transitions = Family::<TransitionLabels, Counter>::default();
        for kind in ConditionType::all() {
            for status in Status::ALL {
                // A counter that appears with its first increase has none, to PromQL's rate().
                drop(transitions.get_or_create(&transition_labels(kind, *status)));
            }
        }
        let probe_seconds = Histogram::new(PROBE_BUCKETS);
        let mut registry = Registry::default();
        registry.register(
            "nodevigil_condition_transitions",
            "Changes of a condition to this status since the agent started",
            transitions.clone(),
        );
        registry.register(
            "nodevigil_kubelet_probe_seconds",
            "Time that the kubelet took to answer a probe of /healthz",
            probe_seconds.clone(),
        );
        registry.register("nodevigil_api_requests", "Requests to the API server, by verb and outcome", requests);
        registry.register_collector(Box::new(Present { desired, api, troubles }));
        Self { registry: Arc::new(registry), probe_seconds, transitions }
    }

    /// Counts a change of a condition to this status.
    pub fn transition(&self, kind: ConditionType, status: Status) {
        self.transitions.get_or_create(&transition_labels(kind, status)).inc();
    }

    /// All metrics in the OpenMetrics text format.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn transition_labels(kind: ConditionType, status: Status) -> TransitionLabels {
    [("type", kind.name()), ("status", status.name())]
}

/// What is read at each scrape.
#[derive(Debug)]
struct Present {
    desired: watch::Receiver<Desired>,
    api: watch::Receiver<ApiFacts>,
    troubles: Troubles,
}

impl Collector for Present {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode_conditions(&mut encoder, &self.desired.borrow().conditions)?;
        encode_troubles(&mut encoder, &self.troubles)?;
        if let Some(until) = self.api.borrow().credential_until {
            let help = "Expiration of the credential for the API server in seconds since 1970";
            let until = until.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64();
            gauge(&mut encoder, "nodevigil_credential_expiration_seconds", help, until)?;
        }
        let version = [([("version", env!("CARGO_PKG_VERSION"))], 1)];
        gauges(&mut encoder, "nodevigil_build_info", "1, with the version of the agent", version)?;
        // What cannot be read is left out.
        Process::myself().map_or(Ok(()), |process| encode_process(&mut encoder, &process))
    }
}

fn encode_conditions(encoder: &mut DescriptorEncoder<'_>, conditions: &[Condition]) -> fmt::Result {
    let of_status = conditions.iter().flat_map(|condition| {
        let sample = |status: &Status| {
            ([("type", condition.kind.name()), ("status", status.name())], u64::from(condition.status == *status))
        };
        Status::ALL.iter().map(sample)
    });
    gauges(encoder, "nodevigil_condition", "Whether the condition has this status: 1 or 0", of_status)?;
    let of_problem = conditions.iter().map(|shown| {
        let status = shown.kind.problem_status().name();
        ([("type", shown.kind.name()), ("status", status)], u64::from(shown.is_problem()))
    });
    let help = "1 while the condition shows a problem, else 0; the label status is the status that means a problem";
    gauges(encoder, "nodevigil_condition_problem", help, of_problem)?;
    let of_reason = conditions.iter();
    let of_reason = of_reason.map(|shown| ([("type", shown.kind.name()), ("reason", shown.reason.as_str())], 1));
    gauges(encoder, "nodevigil_condition_reason", "1 for the reason that the condition shows", of_reason)
}

fn encode_troubles(encoder: &mut DescriptorEncoder<'_>, troubles: &Troubles) -> fmt::Result {
    let present = troubles.present();
    let troubles = Trouble::ALL.iter();
    let troubles = troubles.map(|(trouble, name, _)| ([("name", *name)], u64::from(present.contains_key(trouble))));
    gauges(encoder, "nodevigil_trouble", "1 while nodevigil itself has this problem, else 0", troubles)?;
    let refused = if present.contains_key(&Trouble::ConfigRefused) { 1.0 } else { 0.0 };
    let help = "1 while the settings are refused and the last accepted ones are in effect, else 0";
    gauge(encoder, "nodevigil_config_refused", help, refused)
}

fn encode_process(encoder: &mut DescriptorEncoder<'_>, process: &Process) -> fmt::Result {
    #[expect(clippy::cast_precision_loss, reason = "a number of bytes, ticks or files is far below 2^52")]
    let float = |number: u64| number as f64;
    let seconds = |ticks: u64| float(ticks) / float(procfs::ticks_per_second());
    if let Ok(stat) = process.stat() {
        let help = "CPU time of the agent in seconds";
        let metric = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        ConstCounter::new(seconds(stat.utime + stat.stime)).encode(metric)?;
        let resident_bytes = float(stat.rss * procfs::page_size());
        gauge(encoder, "process_resident_memory_bytes", "Resident memory of the agent in bytes", resident_bytes)?;
        if let Ok(booted) = procfs::boot_time_secs() {
            let started_at = float(booted) + seconds(stat.starttime);
            gauge(encoder, "process_start_time_seconds", "Start of the agent in seconds since 1970", started_at)?;
        }
    }
    let open = process.fd_count().map(|count| float(count as u64));
    open.map_or(Ok(()), |open| gauge(encoder, "process_open_fds", "Open file descriptors of the agent", open))
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

/// One sample for each set of labels.
fn gauges<'a, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = ([(&'static str, &'a str); N], u64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Serves the metrics; never ends. An address that cannot be bound is a trouble, and tried again each minute.
pub async fn serve(listen: SocketAddr, metrics: Metrics, troubles: Troubles) {
    loop {
        match TcpListener::bind(listen).await {
            Ok(listener) => {
                troubles.clear(Trouble::MetricsNotServed);
                accept(&listener, &metrics).await;
            }
            Err(error) => troubles.set(
                Trouble::MetricsNotServed,
                format!("cannot listen on {listen}: {error}; choose another address by `listen` in section [metrics]"),
            ),
        }
        sleep(BIND_AGAIN_AFTER).await;
    }
}

async fn accept(listener: &TcpListener, metrics: &Metrics) {
    let service = TowerToHyperService::new(router(metrics.clone()));
    let mut open = VecDeque::<AbortHandle>::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_AGAIN_AFTER).await;
            continue;
        };
        let connection =
            http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service.clone());
        open.retain(|connection| !connection.is_finished());
        if open.len() >= MAX_CONNECTIONS {
            open.pop_front().inspect(AbortHandle::abort);
        }
        // The client sees that the connection failed or took too long.
        open.push_back(tokio::spawn(timeout(CONNECTION_LASTS, connection)).abort_handle());
    }
}

fn router(metrics: Metrics) -> Router {
    let page = async move |headers: HeaderMap| match metrics.text() {
        Ok(text) if accepts_openmetrics(&headers) => ([(CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Ok(text) => ([(CONTENT_TYPE, PLAIN)], plain(&text)).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    };
    Router::new().route("/metrics", get(page)).route("/healthz", get(async || "ok\n"))
}

/// Whether the client lists OpenMetrics, even if it prefers another format.
fn accepts_openmetrics(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    accepted.any(|accept| accept.to_ascii_lowercase().contains("application/openmetrics-text"))
}

/// An OpenMetrics text in the older format, which has no end mark and names a counter as its sample.
fn plain(openmetrics: &str) -> String {
    let kinds = openmetrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"));
    let counters: BTreeSet<_> = kinds.collect();
    let mut text = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                text.extend(["# ", what, " ", name, "_total ", rest, "\n"]);
            }
            _ => text.extend([line, "\n"]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::condition::Uptime;

    const PAGE: &str = r#"# HELP nodevigil_condition_transitions Changes of a condition to this status since the agent started.
# TYPE nodevigil_condition_transitions counter
nodevigil_condition_transitions_total{type="KubeletHealthy",status="True"} 0
nodevigil_condition_transitions_total{type="KubeletHealthy",status="False"} 1
nodevigil_condition_transitions_total{type="KubeletHealthy",status="Unknown"} 0
# HELP nodevigil_kubelet_probe_seconds Time that the kubelet took to answer a probe of /healthz.
# TYPE nodevigil_kubelet_probe_seconds histogram
nodevigil_kubelet_probe_seconds_sum 0.003
nodevigil_kubelet_probe_seconds_count 1
nodevigil_kubelet_probe_seconds_bucket{le="0.001"} 0
nodevigil_kubelet_probe_seconds_bucket{le="0.002"} 0
nodevigil_kubelet_probe_seconds_bucket{le="0.005"} 1
nodevigil_kubelet_probe_seconds_bucket{le="0.01"} 1
nodevigil_kubelet_probe_seconds_bucket{le="0.025"} 1
nodevigil_kubelet_probe_seconds_bucket{le="0.05"} 1
nodevigil_kubelet_probe_seconds_bucket{le="0.1"} 1
nodevigil_kubelet_probe_seconds_bucket{le="0.25"} 1
nodevigil_kubelet_probe_seconds_bucket{le="0.5"} 1
nodevigil_kubelet_probe_seconds_bucket{le="1.0"} 1
nodevigil_kubelet_probe_seconds_bucket{le="+Inf"} 1
# HELP nodevigil_condition Whether the condition has this status: 1 or 0
# TYPE nodevigil_condition gauge
nodevigil_condition{type="KubeletHealthy",status="True"} 0
nodevigil_condition{type="KubeletHealthy",status="False"} 1
nodevigil_condition{type="KubeletHealthy",status="Unknown"} 0
nodevigil_condition{type="MemoryExhaustionImminent",status="True"} 0
nodevigil_condition{type="MemoryExhaustionImminent",status="False"} 1
nodevigil_condition{type="MemoryExhaustionImminent",status="Unknown"} 0
# HELP nodevigil_condition_problem 1 while the condition shows a problem, else 0; the label status is the status that means a problem
# TYPE nodevigil_condition_problem gauge
nodevigil_condition_problem{type="KubeletHealthy",status="False"} 1
nodevigil_condition_problem{type="MemoryExhaustionImminent",status="True"} 0
# HELP nodevigil_condition_reason 1 for the reason that the condition shows
# TYPE nodevigil_condition_reason gauge
nodevigil_condition_reason{type="KubeletHealthy",reason="KubeletHung"} 1
nodevigil_condition_reason{type="MemoryExhaustionImminent",reason="MemoryIsAvailable"} 1
# HELP nodevigil_api_requests Requests to the API server, by verb and outcome.
# TYPE nodevigil_api_requests counter
nodevigil_api_requests_total{verb="patch",outcome="success"} 1
# HELP nodevigil_trouble 1 while nodevigil itself has this problem, else 0
# TYPE nodevigil_trouble gauge
nodevigil_trouble{name="ConfigRefused"} 1
nodevigil_trouble{name="CredentialExpiring"} 0
nodevigil_trouble{name="BusLost"} 0
nodevigil_trouble{name="KernelLogUnreadable"} 0
nodevigil_trouble{name="IdentityUnusable"} 0
nodevigil_trouble{name="ApiRefused"} 0
nodevigil_trouble{name="ForeignOwner"} 0
nodevigil_trouble{name="CheckRefused"} 0
nodevigil_trouble{name="PauseRefused"} 0
nodevigil_trouble{name="RecordsNotUploaded"} 0
nodevigil_trouble{name="MetricsNotServed"} 0
nodevigil_trouble{name="NodeMissing"} 0
# HELP nodevigil_config_refused 1 while the settings are refused and the last accepted ones are in effect, else 0
# TYPE nodevigil_config_refused gauge
nodevigil_config_refused 1.0
# HELP nodevigil_credential_expiration_seconds Expiration of the credential for the API server in seconds since 1970
# TYPE nodevigil_credential_expiration_seconds gauge
nodevigil_credential_expiration_seconds 1801180800.0
# HELP nodevigil_build_info 1, with the version of the agent
# TYPE nodevigil_build_info gauge
nodevigil_build_info{version="VERSION"} 1
# HELP process_cpu_seconds CPU time of the agent in seconds
# TYPE process_cpu_seconds counter
process_cpu_seconds_total VALUE
# HELP process_resident_memory_bytes Resident memory of the agent in bytes
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes VALUE
# HELP process_start_time_seconds Start of the agent in seconds since 1970
# TYPE process_start_time_seconds gauge
process_start_time_seconds VALUE
# HELP process_open_fds Open file descriptors of the agent
# TYPE process_open_fds gauge
process_open_fds VALUE
# EOF
"#;

    fn metrics(troubles: &Troubles) -> (Metrics, RequestCounts) {
        // One is a problem; to the other the same status means health.
        let shown = [
            (ConditionType::KubeletHealthy, "KubeletHung"),
            (ConditionType::MemoryExhaustionImminent, "MemoryIsAvailable"),
        ];
        let conditions = shown.map(|(kind, reason)| Condition {
            kind,
            status: Status::False,
            reason: reason.into(),
            message: "m".into(),
            since: Uptime::ZERO,
        });
        let desired = Desired { conditions: conditions.into(), ..Desired::default() };
        let requests = RequestCounts::default();
        let facts = ApiFacts { credential_until: Some("2027-01-29T00:00:00Z".parse().unwrap()), ..ApiFacts::default() };
        let api = watch::channel(facts).1;
        (Metrics::new(watch::channel(desired).1, api, requests.clone(), troubles.clone()), requests)
    }

    #[test]
    fn the_page_has_the_counts_and_the_present_state() {
        let troubles = Troubles::default();
        let (metrics, requests) = metrics(&troubles);
        metrics.transition(ConditionType::KubeletHealthy, Status::False);
        metrics.probe_seconds.observe(0.003);
        requests.get_or_create(&[("verb", "patch"), ("outcome", "success")]).inc();
        troubles.set(Trouble::ConfigRefused, "/etc/nodevigil/config.toml:2:1: unknown field `a\"`".into());
        let page = metrics.text().unwrap();
        let without_value = |line: &str| match line.split_once(' ') {
            Some((name, value)) if name.starts_with("process_") => {
                let value: f64 = value.parse().unwrap();
                // The CPU time of a process that has just started is zero.
                assert!(value > 0.0 || name == "process_cpu_seconds_total", "{line}");
                format!("{name} VALUE")
            }
            _ => line.replace(env!("CARGO_PKG_VERSION"), "VERSION"),
        };
        // All conditions have the same lines.
        let is_expected =
            |line: &&str| !line.starts_with("nodevigil_condition_transitions_total") || line.contains("KubeletHealthy");
        let (mut lines, mut expected): (Vec<_>, Vec<_>) =
            (page.lines().filter(is_expected).map(without_value).collect(), PAGE.lines().collect());
        // The library shows the samples of a metric in any order.
        lines.sort();
        expected.sort_unstable();
        assert_eq!(lines, expected);
    }

    #[test]
    fn alerts_and_dashboard_use_only_metrics_that_exist() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf();
        for file in ["alerts.yaml", "dashboard.json"] {
            let text = std::fs::read_to_string(root.join("packaging/monitoring").join(file)).unwrap();
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let words = text.split(|c: char| !is_name(c));
            let used: Vec<_> =
                words.filter(|word| word.starts_with("nodevigil_") || word.starts_with("process_")).collect();
            assert!(used.len() > 5, "{file}: {used:?}");
            for name in used {
                let sample = PAGE.lines().find(|line| line.split(['{', ' ']).next() == Some(name));
                assert!(sample.is_some(), "{file}: {name}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_is_taken_is_a_trouble_until_it_can_be_bound() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listen = taken.local_addr().unwrap();
        let troubles = Troubles::default();
        let serve = tokio::spawn(serve(listen, metrics(&troubles).0, troubles.clone()));
        sleep(Duration::from_secs(1)).await;
        let present = troubles.present();
        assert!(present[&Trouble::MetricsNotServed].starts_with(&format!("cannot listen on {listen}: ")));
        drop(taken);
        sleep(BIND_AGAIN_AFTER).await;
        assert!(troubles.present().is_empty());
        serve.abort();
    }

    async fn answer(listen: SocketAddr, path: &str) -> String {
        answer_to(listen, path, "*/*").await
    }

    async fn answer_to(listen: SocketAddr, path: &str, accept: &str) -> String {
        let mut stream = TcpStream::connect(listen).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn listening() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listen = listener.local_addr().unwrap();
        let metrics = metrics(&Troubles::default()).0;
        tokio::spawn(async move { accept(&listener, &metrics).await });
        listen
    }

    #[tokio::test]
    async fn both_pages_are_served() {
        let listen = listening().await;
        assert!(answer(listen, "/healthz").await.ends_with("\r\n\r\nok\n"));
        let page = answer(listen, "/metrics").await;
        assert!(
            page.contains(PLAIN) && page.contains("\n# TYPE nodevigil_condition_transitions_total counter\n"),
            "{page}"
        );
        assert!(page.contains("\n# TYPE nodevigil_condition gauge\n") && !page.contains("# EOF"), "{page}");
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for accept in [prometheus, "Application/OpenMetrics-Text", "text/plain, application/openmetrics-text"] {
            let page = answer_to(listen, "/metrics", accept).await;
            assert!(page.contains(OPENMETRICS) && page.ends_with("# EOF\n"), "{accept}: {page}");
            assert!(page.contains("\n# TYPE nodevigil_condition_transitions counter\n"), "{accept}: {page}");
        }
        assert!(answer_to(listen, "/metrics", "text/plain;version=0.0.4").await.contains(PLAIN));
        assert!(answer(listen, "/").await.starts_with("HTTP/1.1 404 "));
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_send_no_request_hold_nobody_up_and_are_cut_off() {
        let listen = listening().await;
        let mut silent = Vec::new();
        for _ in 0..5 * MAX_CONNECTIONS {
            silent.push(TcpStream::connect(listen).await.unwrap());
        }
        let started = tokio::time::Instant::now();
        assert!(answer(listen, "/healthz").await.ends_with("ok\n"));
        assert!(started.elapsed() < CONNECTION_LASTS);
        for mut stream in silent {
            assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap_or_default(), 0);
        }
    }
}
