//! What every request to the API server goes through. Before it is sent it waits if the API server fails; it has a deadline and is
//! counted; and its answer shows the API server's time of day, whether the API server can be reached, and what it refuses.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper::{Method, Request, Response, StatusCode, header};
use kube::{
    Client,
    client::{Body, ClientBuilder},
    core::Status,
};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use tower::{BoxError, service_fn};

use super::{
    clock::{Now, ServerClock, left},
    pacing::Backoff,
};
use crate::{
    condition::Uptime,
    host::{
        api::{ApiFacts, Reach, RequestCounts},
        clock::{uptime, wall},
        trouble::{Trouble, Troubles},
    },
};

/// The time for a request and its whole answer; for a watch, until the answer begins.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest time between two attempts while the API server fails, unless its `Retry-After` asks for more.
const LONGEST_DELAY: Duration = Duration::from_secs(15);
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(5);
/// A watch gets a bookmark each minute; a connection that is silent for longer is dead
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks>).
const SILENT_AFTER: Duration = Duration::from_mins(2);
/// A smaller difference of the API server's clock is not passed on: `Date` has whole seconds.
const CLOCK_STEP: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);

/// What all requests share. A new client is built when its credential changes; this stays.
#[derive(Debug, Clone)]
pub struct ApiConnection {
    pub facts: watch::Sender<ApiFacts>,
    pub troubles: Troubles,
    requests: RequestCounts,
    state: Arc<Mutex<State>>,
    /// Notified when the API server answers again.
    answers: Arc<Notify>,
    /// Notified when the API server refuses our credential with 401 Unauthorized.
    pub unauthorized: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    backoff: Backoff,
    clock: ServerClock,
    /// What the API server refuses, and the message of the trouble.
    refusals: BTreeMap<(Trouble, String), String>,
}

impl ApiConnection {
    pub fn new(facts: watch::Sender<ApiFacts>, requests: RequestCounts, troubles: Troubles) -> Self {
        let (backoff, clock) = (Backoff::new(LONGEST_DELAY), ServerClock::default());
        let state = State { backoff, clock, refusals: BTreeMap::new() };
        let (answers, unauthorized) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        Self { facts, troubles, requests, state: Arc::new(Mutex::new(state)), answers, unauthorized }
    }

    /// Builds a client. This reads files and belongs into `spawn_blocking`.
    pub fn connect(&self, mut config: kube::Config) -> kube::Result<Client> {
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

    /// The present moment.
    pub fn now(&self) -> Now {
        self.state().clock.now(uptime(), wall())
    }

    /// Until when no request may be sent, because the API server fails; none if one may be sent now.
    pub fn closed_until(&self) -> Option<Uptime> {
        self.state().backoff.until(uptime())
    }

    /// Waits until then, or until the API server answers again.
    pub async fn wait(&self, until: Uptime) {
        tokio::select! {
            () = sleep(left(until, uptime())) => {}
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

    async fn send(&self, inner: &Client, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (verb, resource) = (verb(&request), resource(request.uri().path()));
        while let Some(until) = self.closed_until() {
            if verb == "patch" {
                // What it says may be out of date when it could be sent: it is decided again then.
                return Err("the API server has failed, and is not asked at present".into());
            }
            self.wait(until).await;
        }
        self.state().backoff.attempt(uptime());
        let exchange = timeout(DEADLINE, exchange(inner, request, verb)).await;
        let result = exchange.unwrap_or_else(|_| Err(format!("no answer within {} s", DEADLINE.as_secs()).into()));
        match result {
            Ok((answer, refusal)) => {
                self.answered(verb, resource, &answer, refusal);
                Ok(answer)
            }
            Err(error) => {
                self.count(verb, "unreached");
                let text = error.downcast_ref().map_or_else(|| describe_chain(&*error), describe);
                self.failed(text, Duration::ZERO);
                Err(error)
            }
        }
    }

    /// Takes in an answer; `refusal` is the message of a 403.
    fn answered(&self, verb: &'static str, resource: &str, answer: &Response<Body>, refusal: Option<String>) {
        let status = answer.status();
        self.count(verb, outcome(status));
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        if status == StatusCode::UNAUTHORIZED {
            self.unauthorized.notify_one();
        }
        if status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::UNAUTHORIZED) {
            let seconds = header(header::RETRY_AFTER).and_then(|value| value.parse().ok()).map(Duration::from_secs);
            return self.failed(format!("HTTP {status}"), seconds.unwrap_or_default().min(LONGEST_RETRY_AFTER));
        }
        if status.is_success() || status == StatusCode::FORBIDDEN {
            self.set_permission(format!("{verb} {resource}"), refusal);
        }
        if let Some(date) = header(header::DATE) {
            self.record_date(date);
        }
        if self.state().backoff.succeeded() {
            self.answers.notify_waiters();
        }
        self.troubles.clear(Trouble::IdentityUnusable);
        self.set_reach(Reach::Reached { since: uptime() });
    }

    fn count(&self, verb: &'static str, outcome: &'static str) {
        self.requests.get_or_create(&[("verb", verb), ("outcome", outcome)]).inc();
    }

    fn failed(&self, error: String, retry_after: Duration) {
        self.state().backoff.failed(uptime(), retry_after);
        self.set_reach(Reach::Unreached { since: uptime(), error });
    }

    fn record_date(&self, date: &str) {
        let mut state = self.state();
        state.clock.record_date(date, uptime());
        let last = state.clock.last();
        drop(state);
        self.facts.send_if_modified(|facts| {
            let is_known = facts.server_time.zip(last).is_some_and(|(known, last)| known.differs_by(last) < CLOCK_STEP);
            if !is_known {
                facts.server_time = last;
            }
            !is_known
        });
    }

    /// Takes in whether the API server refuses `what` with 403 Forbidden, and with which message.
    fn set_permission(&self, what: String, refusal: Option<String>) {
        let advice = "grant it as packaging/kubernetes does (rbac.yaml, for taints also taints.yaml)";
        let refusal =
            refusal.map(|message| format!("the API server answers 403 Forbidden to {what}: {message}; {advice}"));
        self.set_refusal(Trouble::ApiForbidden, what, refusal);
    }

    /// Takes in how a request about `node` ended; `request` completes "refuses to". If the API server refuses it for good, this is
    /// a trouble until the same request succeeds.
    pub fn record_answer(&self, request: &'static str, node: &str, error: Option<&kube::Error>) {
        let refusal = match error {
            None => None,
            Some(error) if is_refusal(error) => Some(format!(
                "the API server refuses to {request} (Node {node}): {}; check the cluster's admission policies and webhooks",
                describe(error)
            )),
            Some(_) => return,
        };
        self.set_refusal(Trouble::ApiRefused, request.to_owned(), refusal);
    }

    /// Takes in whether the API server refuses `what`. All refusals of a kind are one trouble.
    fn set_refusal(&self, trouble: Trouble, what: String, refusal: Option<String>) {
        let mut state = self.state();
        match refusal {
            Some(message) => state.refusals.insert((trouble, what), message),
            None => state.refusals.remove(&(trouble, what)),
        };
        let all = state.refusals.iter().filter(|((kind, _), _)| *kind == trouble);
        let all: Vec<_> = all.map(|(_, message)| message.clone()).collect();
        drop(state);
        if all.is_empty() {
            self.troubles.clear(trouble);
        } else {
            self.troubles.set(trouble, redact::bounded(&all.join("; "), 1000));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a request and reads its whole answer, except that of a watch. Also returns the message of a 403.
async fn exchange(
    inner: &Client,
    request: Request<Body>,
    verb: &'static str,
) -> Result<(Response<Body>, Option<String>), BoxError> {
    let answer = inner.send(request).await?;
    if verb == "watch" && answer.status().is_success() {
        return Ok((answer, None));
    }
    let (parts, body) = answer.into_parts();
    let bytes = body.collect_bytes().await?;
    let refusal = (parts.status == StatusCode::FORBIDDEN).then(|| {
        let status = serde_json::from_slice::<Status>(&bytes);
        redact::sanitize_line(&status.map(|status| status.message).unwrap_or_default(), 300)
    });
    Ok((Response::from_parts(parts, Body::from(bytes)), refusal))
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

/// The resource as a role names it.
fn resource(path: &str) -> &'static str {
    if path.contains("/leases/") {
        "leases"
    } else if path.ends_with("/events") {
        "events"
    } else if path.ends_with("/status") {
        "nodes/status"
    } else {
        "nodes"
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

/// Whether the same request would be refused again. 401 and 403 are troubles of their own, and 409 is the answer to a request that
/// another one has overtaken.
fn is_refusal(error: &kube::Error) -> bool {
    let has_code = |codes: &[u16]| matches!(error, kube::Error::Api(status) if codes.contains(&status.code));
    Failure::of(error) != Failure::Unanswered && !has_code(&[403, 409])
}

/// An error in one bounded line.
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => redact::sanitize_line(&format!("HTTP {}: {}", status.code, status.message), 300),
        kube::Error::Service(error) => describe_chain(&**error),
        error => describe_chain(error),
    }
}

/// An error and its causes in one bounded line.
fn describe_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes: Vec<_> = anyhow::Chain::new(error).map(ToString::to_string).collect();
    redact::sanitize_line(&causes.join(": "), 300)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;

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
        assert!(facts.borrow().server_time.is_some());
        assert!(api.now().server >= "2095-11-26T06:17:00Z".parse().unwrap(), "the time goes by the answer's Date");
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
    async fn a_refusal_is_a_trouble_that_names_what_is_missing_until_it_is_granted() {
        let (api, facts, _, troubles) = connection();
        let status = serde_json::json!({"code": 403, "reason": "Forbidden", "message": "nodes \"n1\" is forbidden", "status": "Failure"});
        let error = get_node(&api, 403, status).await.unwrap_err();
        assert_eq!(Failure::of(&error), Failure::Refused);
        let message = troubles.present()[&Trouble::ApiForbidden].clone();
        assert!(message.contains("get nodes") && message.contains("\"n1\" is forbidden"), "{message}");
        assert!(matches!(facts.borrow().reach, Reach::Reached { .. }), "it answers");
        get_node(&api, 200, serde_json::json!({"metadata": {"name": "n1"}})).await.unwrap();
        assert!(troubles.present().is_empty());
    }

    #[tokio::test]
    async fn a_refused_credential_is_notified() {
        let (api, ..) = connection();
        get_node(&api, 401, serde_json::json!({})).await.unwrap_err();
        api.unauthorized.notified().await;
    }

    #[test]
    fn a_refused_request_is_a_trouble_with_the_api_servers_message_until_the_same_request_succeeds() {
        let (api, _, _, troubles) = connection();
        let error = |code, message: &str| {
            kube::Error::Api(Box::new(Status { code, message: message.to_owned(), ..Status::default() }))
        };
        for code in [401, 403, 409, 429, 500, 503] {
            api.record_answer("apply conditions", "n1", Some(&error(code, "")));
            assert_eq!(troubles.present().len(), 0, "{code}");
        }
        for code in [400, 404, 413, 422] {
            api.record_answer("apply conditions", "n1", Some(&error(code, "message: too long")));
            let refused = "the API server refuses to apply conditions (Node n1): HTTP ";
            let expected =
                format!("{refused}{code}: message: too long; check the cluster's admission policies and webhooks");
            assert_eq!(troubles.present()[&Trouble::ApiRefused], expected);
        }
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
    fn verb_and_resource_of_a_request_are_those_of_a_role() {
        let request = |uri: &str| Request::get(uri).body(Body::empty()).unwrap();
        assert_eq!(verb(&request("/api/v1/nodes?fieldSelector=a&watch=true")), "watch");
        assert_eq!(verb(&request("/api/v1/nodes?limit=500")), "list");
        assert_eq!(verb(&request("/api/v1/nodes/n1")), "get");
        assert_eq!(resource("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"), "leases");
        assert_eq!(resource("/api/v1/nodes/n1/status"), "nodes/status");
    }
}
