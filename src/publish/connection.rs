//! What every request to the API server goes through. Before it is sent it waits if the API server fails; it has a deadline and is
//! counted; and its answer shows the API server's time of day and whether the API server can be reached.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, LengthLimitError, Limited, StreamBody};
use hyper::body::{Body as HttpBody, Bytes};
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response, StatusCode, header};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tower::{BoxError, service_fn};

use super::clock::{server_clock, sleep_until};
use super::pacing::{Backoff, Spread};
use crate::condition::Uptime;
use crate::facts::{ApiFacts, Reach, RequestCounts};
use crate::host::clock::{Now, uptime};
use crate::trouble::{Trouble, Troubles};

/// The time for a request and its whole answer; for a watch, until the answer begins.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest time between two attempts while the API server fails, unless its `Retry-After` asks for more.
const LONGEST_DELAY: Duration = Duration::from_secs(15);
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(5);
/// A watch gets a bookmark each minute; a connection that is silent for longer is dead
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks>).
const SILENT_AFTER: Duration = Duration::from_mins(2);

/// What to do about 403. The roles do not reach a kubelet, which Kubernetes itself gives its rights.
const NOT_ALLOWED: &str = "grant it as packaging/kubernetes does (rbac.yaml, for taints also taints.yaml), \
                           to an identity of nodevigil's own and not to the kubelet's";

/// The largest answer, and line of a watch, that is read. etcd keeps objects of 1.5 MiB at most.
const MAX_ANSWER_BYTES: usize = 4 << 20;
const TOO_LARGE: &str = "an answer of the API server is larger than 4 MiB and is not read; check the address in the kubeconfig and what \
                         stands between it and this node";

/// An answer whose size is bounded.
type Answer = UnsyncBoxBody<Bytes, BoxError>;

/// What to do about writes that are not answered.
pub const ANSWERS_READS: &str = "it answers reads: check its webhooks and the free space of etcd";
/// So many writes in succession without an answer are a trouble, if reads are answered.
pub const MAX_FAILED_WRITES: u32 = 5;

/// The name of the request that creates an Event, in a trouble.
pub const CREATE_EVENT: &str = "create an Event";
/// The name of a watch and the list before it, if the API server refuses them.
pub const WATCH: &str = "watch the Node";

/// What all requests share. A new client is built when its credential changes; this stays.
#[derive(Debug, Clone)]
pub struct ApiConnection {
    pub facts: watch::Sender<ApiFacts>,
    pub troubles: Troubles,
    requests: RequestCounts,
    backoff: Arc<Mutex<Backoff>>,
    spread: Arc<Mutex<Spread>>,
    /// The requests that the API server refuses, how each is reported, and when it was refused last.
    refusals: Arc<Mutex<BTreeMap<&'static str, (String, Uptime)>>>,
    /// Notified when the API server answers again.
    answers: Arc<Notify>,
    /// Notified when the API server refuses our credential with 401 Unauthorized.
    pub unauthorized: Arc<Notify>,
}

impl ApiConnection {
    pub fn new(facts: watch::Sender<ApiFacts>, requests: RequestCounts, troubles: Troubles) -> Self {
        let backoff = Arc::new(Mutex::new(Backoff::new(LONGEST_DELAY)));
        let (answers, unauthorized) = (Arc::default(), Arc::default());
        let (refusals, spread) = (Arc::default(), Arc::default());
        Self { facts, troubles, requests, backoff, spread, refusals, answers, unauthorized }
    }

    /// From now on requests that can wait are spread over up to this time, first because the agent has started.
    pub fn spread_over(&self, longest: Duration) {
        let mut spread = lock(&self.spread);
        spread.longest = longest;
        spread.begin(uptime());
    }

    /// Takes in whether something is to be published that cannot wait.
    pub fn set_urgent(&self, is_urgent: bool) {
        let was_urgent = std::mem::replace(&mut lock(&self.spread).is_urgent, is_urgent);
        if is_urgent && !was_urgent {
            self.answers.notify_waiters();
        }
    }

    /// Builds a client whose requests name `node` in their `User-Agent`. This reads files and belongs into `spawn_blocking`.
    pub fn connect(&self, mut config: kube::Config, node: &str) -> kube::Result<Client> {
        config.headers.extend(HeaderValue::from_str(&user_agent(node)).ok().map(|agent| (header::USER_AGENT, agent)));
        config.default_retry = false; // `send` waits instead
        config.connect_timeout = Some(DEADLINE);
        config.read_timeout = Some(SILENT_AFTER);
        config.reset_reader_on_write = true;
        Ok(self.wrap(ClientBuilder::try_from(config)?.build()))
    }

    /// A client whose requests go through this connection to `inner`.
    pub fn wrap(&self, inner: Client) -> Client {
        let api = self.clone();
        let service = service_fn(move |request| {
            let (api, inner) = (api.clone(), inner.clone());
            async move { api.send(&inner, request).await }
        });
        Client::new(service, "default")
    }

    /// The present moment, by the host's time of day until the API server has answered.
    pub fn now(&self) -> Now {
        Now::read(self.facts.borrow().server_clock)
    }

    /// Whether the last request was not answered.
    pub fn is_unreached(&self) -> bool {
        is_unreached(&self.facts.borrow())
    }

    /// Waits until a request is not answered.
    pub async fn unreached(&self) {
        drop(self.facts.subscribe().wait_for(is_unreached).await);
    }

    /// Until when no request may be sent, because the API server fails, or all agents may send one; none if one may be sent now.
    pub fn closed_until(&self) -> Option<Uptime> {
        let now = uptime();
        self.backoff().until(now).max(lock(&self.spread).until(now))
    }

    /// The same for an Event.
    fn closed_to_events_until(&self) -> Option<Uptime> {
        let now = uptime();
        self.backoff().until(now).max(lock(&self.spread).event_until(now))
    }

    /// Waits until then, or until the API server answers again, or something cannot wait.
    pub async fn wait(&self, until: Uptime) {
        tokio::select! {
            () = sleep_until(until) => {}
            () = self.answers.notified() => {}
        }
    }

    /// Sets the reach. Since when it has been so is kept.
    pub fn set_reach(&self, mut reach: Reach) {
        self.facts.send_if_modified(|facts| {
            match (&facts.reach, &mut reach) {
                (Reach::Reached { since: before }, Reach::Reached { since })
                | (Reach::Unreached { since: before, .. }, Reach::Unreached { since, .. }) => *since = *before,
                _ => {}
            }
            let differs = facts.reach != reach;
            facts.reach = reach;
            differs
        });
    }

    /// Takes in that the credential has changed, and may be taken now.
    pub fn credential_changed(&self) {
        self.forget_refusals(Uptime::MAX);
        self.backoff().succeeded();
        self.answers.notify_waiters();
    }

    async fn send(&self, inner: &Client, request: Request<Body>) -> Result<Response<Answer>, BoxError> {
        let verb = verb(&request);
        if verb != "patch" {
            let closed_until = if verb == "create" { Self::closed_to_events_until } else { Self::closed_until };
            while let Some(until) = closed_until(self) {
                self.wait(until).await;
            }
        } else if self.backoff().until(uptime()).is_some() {
            // Its content may be out of date by then: the caller decides again.
            return Err("the API server has failed; no request is sent until it may have recovered".into());
        }
        self.backoff().attempt(uptime());
        lock(&self.spread).sent(uptime());
        let silence = || kube::Error::Service(format!("no answer within {} s", DEADLINE.as_secs()).into());
        match timeout(DEADLINE, self.exchange(inner, request, verb)).await.unwrap_or_else(|_| Err(silence())) {
            Ok(answer) => {
                self.answered(verb, &answer);
                Ok(answer)
            }
            Err(error) => {
                self.count(verb, "unreached");
                self.failed(describe(&error), Duration::ZERO);
                Err(error.into())
            }
        }
    }

    /// Sends a request and reads its whole answer, except that of a watch.
    async fn exchange(&self, inner: &Client, request: Request<Body>, verb: &str) -> kube::Result<Response<Answer>> {
        let (parts, body) = inner.send(request).await?.into_parts();
        if verb == "watch" && parts.status.is_success() {
            return Ok(Response::from_parts(parts, self.lines(body)));
        }
        let read = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                self.record(TOO_LARGE, Some(TOO_LARGE.into()));
            }
            kube::Error::Service(error)
        })?;
        self.record(TOO_LARGE, None);
        Ok(Response::from_parts(parts, Body::from(read.to_bytes()).map_err(Into::into).boxed_unsync()))
    }

    /// The body of a watch. It fails at a line that is longer than an answer may be.
    fn lines<B: HttpBody<Data = Bytes, Error = kube::Error> + Send + 'static>(&self, body: B) -> Answer {
        let (api, mut line) = (self.clone(), 0);
        let frames = BodyStream::new(body).map(move |frame| {
            let frame = frame?;
            let data = frame.data_ref().map_or(&[][..], |data| data);
            line = data.iter().rposition(|byte| *byte == b'\n').map_or(line + data.len(), |end| data.len() - end - 1);
            if line > MAX_ANSWER_BYTES {
                api.record(TOO_LARGE, Some(TOO_LARGE.into()));
                return Err(BoxError::from(TOO_LARGE));
            }
            Ok(frame)
        });
        StreamBody::new(frames).boxed_unsync()
    }

    fn answered(&self, verb: &'static str, answer: &Response<Answer>) {
        let status = answer.status();
        self.count(verb, outcome(status));
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        if status == StatusCode::UNAUTHORIZED {
            self.unauthorized.notify_waiters();
            self.backoff().denied(uptime());
            return self.set_reach(Reach::Unreached { since: uptime(), error: format!("HTTP {status}") });
        }
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            if verb == "create" {
                // Webhooks, or an etcd of their own, may fail for Events alone, and `events` waits by itself.
                return;
            }
            let seconds = header(header::RETRY_AFTER).and_then(|value| value.parse().ok()).map(Duration::from_secs);
            return self.failed(format!("HTTP {status}"), seconds.unwrap_or_default().min(LONGEST_RETRY_AFTER));
        }
        if verb == "watch" && status.is_success() {
            self.record_answer(WATCH, "", None);
        }
        if let Some(date) = header(header::DATE) {
            self.facts.send_if_modified(|facts| {
                let corrected = server_clock(facts.server_clock, date, uptime());
                facts.server_clock = corrected.or(facts.server_clock);
                corrected.is_some()
            });
        }
        if self.backoff().succeeded() {
            self.answers.notify_waiters();
        }
        self.troubles.clear(Trouble::IdentityUnusable);
        self.set_reach(Reach::Reached { since: uptime() });
    }

    fn count(&self, verb: &'static str, outcome: &'static str) {
        self.requests.get_or_create(&[("verb", verb), ("outcome", outcome)]).inc();
    }

    /// Takes in that the watch has ended by this error. That may be so for all agents, whose next requests are to be spread.
    pub fn watch_ended(&self, error: String) {
        lock(&self.spread).begin(uptime());
        self.set_reach(Reach::Unreached { since: uptime(), error });
    }

    fn failed(&self, error: String, retry_after: Duration) {
        self.backoff().failed(uptime(), retry_after);
        lock(&self.spread).begin(uptime());
        self.set_reach(Reach::Unreached { since: uptime(), error });
    }

    /// Takes in how a request about `node` ended; `request` completes "refuses to". If the API server refuses it for good, this is
    /// a trouble until the same request succeeds.
    pub fn record_answer(&self, request: &'static str, node: &str, error: Option<&kube::Error>) {
        let advice = match error {
            None => None,
            // 401 is a trouble of its own, and 409 the answer to a request that another one has overtaken.
            Some(error) if Failure::of(error) == Failure::Unanswered => return,
            Some(kube::Error::Api(status)) if status.code == 409 => return,
            Some(kube::Error::Api(status)) if status.code == 403 => Some(NOT_ALLOWED),
            Some(kube::Error::Api(_)) => Some("check the cluster's admission policies and webhooks"),
            Some(_) => Some(
                "this is no answer of an API server: check the address in the kubeconfig, its token file and proxies",
            ),
        };
        self.record_refusal(request, node, error.zip(advice));
    }

    /// Sets or ends the trouble that `request` is refused, by the error and what to do about it.
    pub fn record_refusal(&self, request: &'static str, node: &str, refusal: Option<(&kube::Error, &str)>) {
        let message = |(error, advice): (&kube::Error, &str)| {
            format!("the API server refuses to {request} (Node {node}): {}; {advice}", describe(error))
        };
        self.record(request, refusal.map(message));
    }

    /// Forgets requests whose last refusal was before that time, because they are not needed any more. The next Event may be hours away, so
    /// that refusal stays.
    pub fn forget_refusals(&self, before: Uptime) {
        lock(&self.refusals).retain(|request, (_, at)| *at >= before || *request == CREATE_EVENT);
        self.record("", None);
    }

    /// Whether the credential or a request is refused, which another credential may end.
    pub fn refuses(&self) -> bool {
        !lock(&self.refusals).is_empty() || self.troubles.present().contains_key(&Trouble::IdentityUnusable)
    }

    fn record(&self, request: &'static str, refusal: Option<String>) {
        let mut refusals = lock(&self.refusals);
        match refusal {
            Some(message) => refusals.insert(request, (message, uptime())),
            None => refusals.remove(request),
        };
        let all = refusals.values().map(|(message, _)| message.as_str()).collect::<Vec<_>>().join("; ");
        self.troubles.replace(Trouble::ApiRefused, (!all.is_empty()).then(|| redact::bounded(&all, 1000)));
    }

    fn backoff(&self) -> MutexGuard<'_, Backoff> {
        lock(&self.backoff)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_unreached(facts: &ApiFacts) -> bool {
    matches!(facts.reach, Reach::Unreached { .. })
}

/// Who asks, for audit logs, in the form of Kubernetes' own clients.
fn user_agent(node: &str) -> String {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    format!("nodevigil/{} (linux/{arch}) {node}", env!("CARGO_PKG_VERSION"))
}

/// The verb as a role names it.
fn verb(request: &Request<Body>) -> &'static str {
    match *request.method() {
        Method::PATCH => "patch",
        Method::POST => "create",
        _ if request.uri().query().is_some_and(|query| query.contains("watch=true")) => "watch",
        _ if request.uri().path().ends_with("/nodes") => "list",
        _ => "get",
    }
}

fn outcome(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200..300 => "success",
        401 | 403 => "forbidden",
        409 | 422 => "conflict",
        429 => "throttled",
        _ => "refused",
    }
}

/// How a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The API server may have carried it out, or may still do so. The next request waits.
    Unanswered,
    /// The object has changed: 404, 409, 422.
    Changed,
    /// Any other answer: the same request would be refused again.
    Refused,
}

impl Failure {
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => match status.code {
                404 | 409 | 422 => Self::Changed,
                401 | 429 | 500.. => Self::Unanswered,
                _ => Self::Refused,
            },
            kube::Error::Service(_) | kube::Error::HyperError(_) => Self::Unanswered,
            _ => Self::Refused,
        }
    }
}

/// An error and its causes in one bounded line.
pub fn describe(error: &kube::Error) -> String {
    let chain = |error| anyhow::Chain::new(error).map(ToString::to_string).collect::<Vec<_>>().join(": ");
    let text = match error {
        kube::Error::Api(status) => format!("HTTP {}: {}", status.code, status.message),
        kube::Error::Service(error) => chain(&**error),
        error => chain(error),
    };
    redact::sanitize_line(&text, 300)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use hyper::body::Frame;
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;
    use kube::core::Status;

    use super::*;

    /// Later than any clock that the test runs by.
    const DATE: &str = "Sat, 26 Nov 2095 06:17:00 GMT";

    fn connection() -> (ApiConnection, watch::Receiver<ApiFacts>, RequestCounts, Troubles) {
        let (facts, received) = watch::channel(ApiFacts::default());
        let (requests, troubles) = (RequestCounts::default(), Troubles::default());
        (ApiConnection::new(facts, requests.clone(), troubles.clone()), received, requests, troubles)
    }

    fn answer(code: u16, body: &serde_json::Value) -> Response<Body> {
        let builder = Response::builder().status(code).header("date", DATE);
        builder.header("retry-after", "60").body(Body::from(body.to_string().into_bytes())).unwrap()
    }

    async fn get_node(api: &ApiConnection, code: u16, body: serde_json::Value) -> kube::Result<Node> {
        let service = service_fn(move |_: Request<Body>| {
            let answer = answer(code, &body);
            async move { Ok::<_, BoxError>(answer) }
        });
        Api::<Node>::all(api.wrap(Client::new(service, "default"))).get("n1").await
    }

    #[tokio::test]
    async fn an_answer_shows_that_the_api_server_is_reached_and_its_clock_and_is_counted() {
        let (api, facts, requests, _) = connection();
        get_node(&api, 200, serde_json::json!({"metadata": {"name": "n1"}})).await.unwrap();
        assert!(matches!(facts.borrow().reach, Reach::Reached { .. }));
        assert!(facts.borrow().server_clock.is_some());
        assert!(
            api.now().server.timestamp() >= "2095-11-26T06:17:00Z".parse().unwrap(),
            "the time goes by the answer's Date"
        );
        assert_eq!(requests.get_or_create(&[("verb", "get"), ("outcome", "success")]).get(), 1);
    }

    #[tokio::test]
    async fn an_api_server_that_fails_is_left_alone_for_as_long_as_it_asks() {
        let (api, facts, requests, _) = connection();
        let asked_at = uptime();
        let error = get_node(&api, 503, serde_json::json!({"code": 503, "message": "etcd is away"})).await.unwrap_err();
        assert_eq!(Failure::of(&error), Failure::Unanswered);
        assert!(matches!(&facts.borrow().reach, Reach::Unreached { error, .. } if error.contains("503")));
        assert!(api.closed_until().unwrap() >= asked_at + Duration::from_mins(1), "Retry-After: 60");
        assert_eq!(requests.get_or_create(&[("verb", "get"), ("outcome", "refused")]).get(), 1);
    }

    #[tokio::test]
    async fn a_refused_credential_is_notified() {
        let (api, ..) = connection();
        let mut unauthorized = std::pin::pin!(api.unauthorized.notified());
        unauthorized.as_mut().enable();
        get_node(&api, 401, serde_json::json!({})).await.unwrap_err();
        unauthorized.await;
    }

    #[tokio::test]
    async fn a_refused_credential_waits_and_a_changed_one_does_not() {
        let (api, ..) = connection();
        get_node(&api, 401, serde_json::json!({})).await.unwrap_err();
        assert!(api.closed_until().unwrap() >= uptime() + Duration::from_secs(7));
        api.credential_changed();
        assert_eq!(api.closed_until(), None);
    }

    #[tokio::test]
    async fn requests_are_spread_after_a_start_and_after_a_failure_unless_something_cannot_wait() {
        let (api, ..) = connection();
        let node = || serde_json::json!({"metadata": {"name": "n1"}});
        api.spread_over(Duration::from_hours(24));
        let waiting = get_node(&api, 200, node());
        let urgent = async { api.set_urgent(true) };
        let (answer, ()) = tokio::join!(waiting, urgent);
        answer.unwrap();
        api.set_urgent(false);
        api.watch_ended("the connection was lost".into());
        assert!(api.is_unreached() && get_node(&api, 200, node()).now_or_never().is_none());
        api.set_urgent(true);
        assert_eq!(api.closed_until(), None);
    }

    #[tokio::test]
    async fn an_answer_that_is_too_large_is_not_read_and_is_a_trouble_until_one_is() {
        let (api, _, _, troubles) = connection();
        let large = "x".repeat(MAX_ANSWER_BYTES);
        let node = |note: &str| serde_json::json!({"metadata": {"name": "n1", "annotations": {"note": note}}});
        let error = get_node(&api, 200, node(&large)).await.unwrap_err();
        assert_eq!(Failure::of(&error), Failure::Unanswered);
        let message = troubles.present()[&Trouble::ApiRefused].clone();
        assert!(message.contains("larger than 4 MiB"), "{message}");
        api.credential_changed();
        get_node(&api, 200, node("x")).await.unwrap();
        assert!(troubles.present().is_empty(), "{:?}", troubles.present());
    }

    #[tokio::test]
    async fn a_line_of_a_watch_that_is_too_long_ends_the_watch() {
        let (api, _, _, troubles) = connection();
        let read = async |lines: Vec<usize>| {
            let lines: Vec<_> =
                lines.into_iter().map(|bytes| format!("{}\n", "x".repeat(bytes)).into_bytes()).collect();
            let text = Bytes::from(lines.concat());
            let chunks = (0..text.len()).step_by(10_000).map(|at| text.slice(at..text.len().min(at + 10_000)));
            let chunks: Vec<_> = chunks.map(|chunk| Ok::<_, kube::Error>(Frame::data(chunk))).collect();
            let body = StreamBody::new(futures::stream::iter(chunks));
            api.lines(body).collect().await.map(|read| read.to_bytes().len()).ok()
        };
        assert_eq!(read(vec![MAX_ANSWER_BYTES - 1, 10, MAX_ANSWER_BYTES - 1]).await, Some(2 * MAX_ANSWER_BYTES + 11));
        assert!(troubles.present().is_empty());
        assert_eq!(read(vec![10, MAX_ANSWER_BYTES + 20_000]).await, None);
        assert!(troubles.present()[&Trouble::ApiRefused].contains("larger than 4 MiB"));
    }

    #[test]
    fn a_refused_request_is_a_trouble_with_the_api_servers_message_until_the_same_request_succeeds() {
        let (api, _, _, troubles) = connection();
        let error = |code, message: &str| {
            kube::Error::Api(Box::new(Status { code, message: message.to_owned(), ..Status::default() }))
        };
        for code in [401, 409, 429, 500, 503] {
            api.record_answer("apply conditions", "n1", Some(&error(code, "")));
            assert_eq!(troubles.present().len(), 0, "{code}");
        }
        let admission = "check the cluster's admission policies and webhooks";
        for (code, advice) in
            [(400, admission), (403, NOT_ALLOWED), (404, admission), (413, admission), (422, admission)]
        {
            api.record_answer("apply conditions", "n1", Some(&error(code, "because")));
            let refused = "the API server refuses to apply conditions (Node n1): HTTP ";
            let expected = format!("{refused}{code}: because; {advice}");
            assert_eq!(troubles.present()[&Trouble::ApiRefused], expected);
        }
        // A proxy, or the login page of a network.
        let page = serde_json::from_str::<Node>("<html>").map_err(kube::Error::SerdeError).unwrap_err();
        api.record_answer("apply conditions", "n1", Some(&page));
        let message = troubles.present()[&Trouble::ApiRefused].clone();
        assert!(message.contains("check the address in the kubeconfig"), "{message}");
        api.record_answer("create an Event", "n1", Some(&error(422, "action: required")));
        api.record_answer("apply conditions", "n1", None);
        let left = troubles.present()[&Trouble::ApiRefused].clone();
        assert!(
            left.starts_with("the API server refuses to create an Event (Node n1): HTTP 422: action: required"),
            "{left}"
        );
        api.record_answer("create an Event", "n1", None);
        assert!(troubles.present().is_empty());
    }

    #[test]
    fn a_refusal_is_over_when_the_credential_changes_or_the_request_is_not_sent_again() {
        let (api, _, _, troubles) = connection();
        let error = kube::Error::Api(Box::new(Status { code: 403, ..Status::default() }));
        api.record_answer("change taints", "n1", Some(&error));
        assert!(!troubles.present().is_empty());
        api.credential_changed();
        assert!(troubles.present().is_empty(), "{:?}", troubles.present());
        api.record_answer("change taints", "n1", Some(&error));
        api.forget_refusals(Uptime::ZERO);
        assert!(!troubles.present().is_empty());
        api.forget_refusals(uptime() + Duration::from_secs(1));
        assert!(troubles.present().is_empty(), "it is not needed any more: {:?}", troubles.present());
    }

    #[test]
    fn the_verb_of_a_request_is_that_of_a_role() {
        let request = |uri: &str| Request::get(uri).body(Body::empty()).unwrap();
        assert_eq!(verb(&request("/api/v1/nodes?fieldSelector=a&watch=true")), "watch");
        assert_eq!(verb(&request("/api/v1/nodes?limit=500")), "list");
        assert_eq!(verb(&request("/api/v1/nodes/n1")), "get");
    }
}
