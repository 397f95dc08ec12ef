//! The agent's side of the helper: asks, waits at most the verb's deadline, and goes on.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the door to the helper that the ban on connecting points to"
)]

mod error;

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    sync::{Semaphore, SemaphorePermit, mpsc},
    time::{sleep, timeout},
};

pub use self::error::HelperError;
pub use crate::helper::protocol::{ClientCertificate, ClockState, Code, Credential, KubeletFacts};
use crate::{
    bootstrap::HostSeen,
    checks::kubelet::Run,
    clock::Clock,
    helper::{
        SOCKET_PATH,
        boot::{BootRequest, LastBoot},
        bootstrap::BootstrapRequest,
        fork::Forked,
        journal::LastWords,
        pods::PodName,
        protocol::{
            self, ConfigAnswer, ConfigRequest, MAX_ANSWER_BYTES, Request, RuntimeAnswer,
            RuntimeRequest, Verb,
        },
        runtime,
        server::MAX_CONNECTIONS,
        storage::StorageAnswer,
    },
    metrics::{HelperTally, Outcome},
};

/// A verb with a longer deadline than this may have to wait for others: for a disk, systemd, the container runtime.
const FAST: Duration = Duration::from_secs(2);
/// How long to wait before connecting again to a helper whose queue is full.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(50);
/// A helper is busy for a moment longer than its answers take: the thread of one that was given has yet to end.
const BUSY_PAUSES: [Duration; 3] = [
    Duration::from_millis(20),
    QUEUE_FULL_PAUSE,
    QUEUE_FULL_PAUSE,
];

/// Asks the helper; between two questions it holds a connection only for those about the container runtime.
#[derive(Debug, Clone)]
pub struct HelperClient {
    socket: Arc<Path>,
    /// Of this client and its clones. The lock is held for a few additions.
    tally: Arc<Mutex<HelperTally>>,
    turns: Arc<Turns>,
    /// On which the runtime was asked for last. Whoever asks takes it, and puts it back with a whole answer read.
    kept: Arc<Mutex<Option<Connection>>>,
}

type Connection = BufReader<UnixStream>;

/// Whose turn it is: the helper answers [`MAX_CONNECTIONS`] at a time and refuses the next, and a start of ours has more
/// questions than that. One place is left for people's commands, and one of ours for what is answered at once.
#[derive(Debug)]
struct Turns {
    all: Semaphore,
    slow: Semaphore,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            all: Semaphore::new(MAX_CONNECTIONS - 1),
            slow: Semaphore::new(MAX_CONNECTIONS - 2),
        }
    }
}

impl Turns {
    /// Waits for a turn. Each is over by its verb's deadline, so that is what a wait is bounded by.
    async fn take(&self, verb: &Verb) -> [Option<SemaphorePermit<'_>>; 2] {
        // Neither is ever closed.
        let slow = if verb.deadline > FAST {
            self.slow.acquire().await.ok()
        } else {
            None
        };
        [slow, self.all.acquire().await.ok()]
    }
}

impl Default for HelperClient {
    fn default() -> Self {
        Self::new(SOCKET_PATH)
    }
}

impl HelperClient {
    /// A client of the helper that listens at `socket`.
    pub fn new(socket: impl AsRef<Path>) -> Self {
        Self {
            socket: socket.as_ref().into(),
            tally: Arc::default(),
            turns: Arc::default(),
            kept: Arc::default(),
        }
    }

    /// The questions so far, counted.
    pub fn tally(&self) -> HelperTally {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count<T>(&self, verb: &Verb, asked_at: Duration, result: &Result<T, HelperError>) {
        let outcome = match result {
            Ok(_) => Outcome::Ok,
            Err(HelperError::Refused { .. }) => Outcome::Refused,
            Err(HelperError::TimedOut { .. }) => Outcome::Timeout,
            Err(HelperError::Absent { .. }) => Outcome::Absent,
            Err(HelperError::Protocol { .. }) => Outcome::Protocol,
        };
        let took = Clock.now().uptime.saturating_sub(asked_at);
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.asked(verb, outcome, took);
    }

    /// Where the helper listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Which process the kubelet is, where it answers, and where its files lie. At most 1 s.
    pub async fn kubelet(&self) -> Result<KubeletFacts, HelperError> {
        self.ask(&Request::Kubelet).await
    }

    /// The same of the kubelet with that process id, which may have ended, or be another for the helper. At most 1 s.
    pub async fn kubelet_with(&self, pid: i32) -> Result<KubeletFacts, HelperError> {
        let facts = self.kubelet().await?;
        if facts.pid == pid {
            return Ok(facts);
        }
        Err(HelperError::Refused {
            verb: Request::Kubelet.verb().name,
            code: Code::NotAKubelet,
            message: format!(
                "its kubelet is process {}, and process {pid} is watched; agent and helper must have one [kubelet] configuration",
                facts.pid
            ),
        })
    }

    /// Which pods there are. At most 1 s.
    pub async fn pods(&self) -> Result<Vec<PodName>, HelperError> {
        self.ask(&Request::Pods).await
    }

    /// What the kubelet speaks to the API server with: the one that runs, else the one that the well-known places hold; its
    /// content only if it is not the one with the mark `known`. At most 12 s.
    pub async fn credential(&self, known: Option<String>) -> Result<Credential, HelperError> {
        let own = false;
        self.ask(&Request::Credential { own, known }).await
    }

    /// Whether the kernel's clock is synchronised. At most 1 s.
    pub async fn clock(&self) -> Result<ClockState, HelperError> {
        self.ask(&Request::Clock).await
    }

    /// Whether a process can be started. At most 1 s.
    pub async fn fork(&self) -> Result<Forked, HelperError> {
        match self.ask(&Request::Fork).await {
            // There was no thread for the answer, so that is the answer.
            Err(HelperError::Refused {
                code: Code::ForkRefused,
                ..
            }) => Ok(Forked::Refused),
            other => other,
        }
    }

    /// How long the certificate is good that the kubelet shows to the API server. At most 2 s.
    pub async fn certificate(&self) -> Result<ClientCertificate, HelperError> {
        self.ask(&Request::Certificate).await
    }

    /// What the exec plugin of the agent's own kubeconfig gives. At most 12 s.
    pub async fn own_credential(&self) -> Result<Credential, HelperError> {
        self.ask(&Request::Credential {
            own: true,
            known: None,
        })
        .await
    }

    /// What the kubelet said last in that run. At most 2 s.
    pub async fn last_words(&self, run: &Run) -> Result<LastWords, HelperError> {
        let (invocation, rke2) = match run {
            Run::Invocation(id) => (Some(id.clone()), false),
            Run::Rke2(_) => (None, true),
        };
        self.ask(&Request::Journal { invocation, rke2 }).await
    }

    /// What the container runtime answers. At most [`runtime::PATIENCE`] longer than it may take.
    pub async fn runtime(&self, request: RuntimeRequest) -> Result<RuntimeAnswer, HelperError> {
        let deadline = request.timeout() + runtime::PATIENCE;
        let request = Request::Runtime(request);
        self.within(deadline, request.verb(), self.ask_again(&request))
            .await
    }

    /// Asks on the connection of the last question, which the helper leaves open for the next about the runtime. One that
    /// has ended meanwhile, as with a helper that was restarted, is no answer: then a new one is asked on.
    async fn ask_again<T: DeserializeOwned>(&self, request: &Request) -> Result<T, HelperError> {
        let kept = self.lock_kept().take();
        if let Some(mut connection) = kept
            && let answer @ Ok(_) = converse(&mut connection, request).await
        {
            *self.lock_kept() = Some(connection);
            return answer;
        }
        let mut connection = BufReader::new(self.connect().await?);
        let answer = converse(&mut connection, request).await;
        if answer.is_ok() {
            *self.lock_kept() = Some(connection);
        }
        answer
    }

    fn lock_kept(&self) -> MutexGuard<'_, Option<Connection>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the file systems of kubelet and runtime are like. At most 4 s.
    pub async fn storage(&self) -> Result<StorageAnswer, HelperError> {
        self.ask(&Request::Storage).await
    }

    /// How the last boot ended, or something to keep of this one. At most 4 s.
    pub async fn boot(&self, request: BootRequest) -> Result<LastBoot, HelperError> {
        self.ask(&Request::Boot(request)).await
    }

    /// How far the host is from boot to being of use, or keeps the record of that. At most 5 s.
    pub async fn bootstrap(&self, request: Box<BootstrapRequest>) -> Result<HostSeen, HelperError> {
        self.ask(&Request::Bootstrap(request)).await
    }

    /// What the rules say of the kubelet's configuration, and again each time that it changes, until nobody listens any
    /// more. The first answer comes within 5 s.
    pub async fn follow_config(
        &self,
        request: ConfigRequest,
        answers_to: mpsc::Sender<ConfigAnswer>,
    ) -> Result<(), HelperError> {
        let request = Request::Config(Box::new(request));
        let verb = request.verb();
        let begin = async {
            let mut answers = BufReader::new(self.connect().await?);
            let first = converse::<ConfigAnswer>(&mut answers, &request).await?;
            Ok((first, answers))
        };
        let late = Err(HelperError::TimedOut {
            verb: verb.name,
            secs: verb.deadline.as_secs(),
        });
        let turn = self.turns.take(verb).await;
        let asked_at = Clock.now().uptime;
        let began = timeout(verb.deadline, begin).await.unwrap_or(late);
        drop(turn); // from its first answer on it has a place of its own there
        self.count(verb, asked_at, &began);
        let (mut answer, mut answers) = began?;
        while answers_to.send(answer).await.is_ok() {
            answer = read_answer(verb.name, Ok(()), &mut answers).await?;
        }
        Ok(())
    }

    /// The deadline holds for everything together: a stopped helper still accepts connections (the kernel does).
    async fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T, HelperError> {
        let verb = request.verb();
        let exchange = async {
            let mut pauses = BUSY_PAUSES.iter();
            loop {
                let mut connection = BufReader::new(self.connect().await?);
                let answer = converse(&mut connection, request).await;
                match (answer, pauses.next()) {
                    (
                        Err(HelperError::Refused {
                            code: Code::Busy, ..
                        }),
                        Some(pause),
                    ) => sleep(*pause).await,
                    (answer, _) => return answer,
                }
            }
        };
        self.within(verb.deadline, verb, exchange).await
    }

    async fn within<T>(
        &self,
        deadline: Duration,
        verb: &'static Verb,
        exchange: impl Future<Output = Result<T, HelperError>>,
    ) -> Result<T, HelperError> {
        let _turn = self.turns.take(verb).await;
        let asked_at = Clock.now().uptime;
        let late = Err(HelperError::TimedOut {
            verb: verb.name,
            secs: deadline.as_secs(),
        });
        let result = timeout(deadline, exchange).await.unwrap_or(late);
        self.count(verb, asked_at, &result);
        result
    }

    async fn connect(&self) -> Result<UnixStream, HelperError> {
        loop {
            match UnixStream::connect(&self.socket).await {
                // A Unix socket with a full queue says so at once instead of waiting: a helper that hangs long
                // enough comes to this.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sleep(QUEUE_FULL_PAUSE).await;
                }
                connected => {
                    return connected.map_err(|source| HelperError::Absent {
                        socket: self.socket.to_path_buf(),
                        source,
                    });
                }
            }
        }
    }
}

/// One question and its answer.
async fn converse<T: DeserializeOwned>(
    connection: &mut Connection,
    request: &Request,
) -> Result<T, HelperError> {
    // A helper that refuses us may close before it has read the question; its answer is there all the same.
    let verb = request.verb().name;
    let question =
        protocol::encode_request(request).map_err(|what| HelperError::Protocol { verb, what })?;
    let written = connection.get_mut().write_all(&question).await;
    read_answer(verb, written, connection).await
}

/// One answer, a line of at most [`MAX_ANSWER_BYTES`]; `written` is how sending the question went.
async fn read_answer<T: DeserializeOwned>(
    verb: &'static str,
    written: io::Result<()>,
    answers: &mut Connection,
) -> Result<T, HelperError> {
    let protocol = |what| HelperError::Protocol { verb, what };
    let mut line = Vec::new();
    let bound = u64::try_from(MAX_ANSWER_BYTES).unwrap_or(u64::MAX);
    let read = answers.take(bound).read_until(b'\n', &mut line).await;
    if !line.ends_with(b"\n") {
        return Err(protocol(match (written.and(read), line.len()) {
            (Err(error), _) => format!("the connection broke: {error}"),
            (Ok(_), MAX_ANSWER_BYTES..) => {
                format!("an answer of over {MAX_ANSWER_BYTES} bytes")
            }
            (Ok(_), _) => "the connection was closed before the answer".to_owned(),
        }));
    }
    protocol::decode_answer(&line)
        .map_err(protocol)?
        .map_err(|refusal| HelperError::Refused {
            verb,
            code: refusal.code,
            message: refusal.message,
        })
}

#[cfg(test)]
mod tests {
    use nix::{
        sys::socket::{Backlog, listen},
        unistd::Uid,
    };
    use tempfile::TempDir;
    use tokio::net::UnixListener;

    use super::*;
    use crate::{
        clock::Clock,
        helper::{
            server::{Peers, Server},
            testing::Process,
        },
        host::files::Root,
    };

    fn place() -> (TempDir, HelperClient) {
        let folder = tempfile::tempdir().unwrap();
        let client = HelperClient::new(folder.path().join("helper.sock"));
        (folder, client)
    }

    /// A real helper whose host is an empty folder.
    fn real_helper(peers: Peers) -> (TempDir, HelperClient) {
        let (folder, client) = place();
        let listener = std::os::unix::net::UnixListener::bind(client.socket()).unwrap();
        let root = Root::new(folder.path());
        std::thread::spawn(move || Server::new(root, Vec::new(), peers).serve(&listener));
        (folder, client)
    }

    /// A helper that says these bytes, whatever it is asked, and closes.
    fn helper_that_says(bytes: Vec<u8>) -> (TempDir, HelperClient) {
        let (folder, client) = place();
        let listener = UnixListener::bind(client.socket()).unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(&bytes).await;
            }
        });
        (folder, client)
    }

    async fn assert_times_out(client: &HelperClient) {
        let start = Clock.now().uptime;
        let error = client.kubelet().await.unwrap_err();
        let took = Clock.now().uptime.saturating_sub(start);
        assert!(
            matches!(
                error,
                HelperError::TimedOut {
                    verb: "kubelet",
                    secs: 1
                }
            ),
            "{error}"
        );
        assert!((1.0..1.5).contains(&took.as_secs_f64()), "{took:?}");
    }

    #[tokio::test]
    async fn a_real_helper_answers_and_refuses() {
        let (folder, client) = real_helper(Peers::only([Uid::current().as_raw()]));
        let root = Root::new(folder.path());
        Process::kubelet(7, &["kubelet"]).write(&root);
        let facts = client.kubelet_with(7).await.unwrap();
        assert_eq!((facts.pid, facts.config), (7, None));
        let other = client.kubelet_with(8).await.unwrap_err();
        assert!(
            matches!(
                other,
                HelperError::Refused {
                    code: Code::NotAKubelet,
                    ..
                }
            ),
            "{other}"
        );
        let error = client.credential(None).await.unwrap_err();
        assert!(
            matches!(
                error,
                HelperError::Refused {
                    code: Code::NoCredential,
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("kubelet.conf"), "{error}");
    }

    /// On one connection, and on another when that has ended.
    #[tokio::test]
    async fn the_runtime_is_asked_for_on_a_connection_that_stays() {
        let (_folder, client) = place();
        let listener = UnixListener::bind(client.socket()).unwrap();
        let taken = Arc::new(Mutex::new(Vec::new()));
        let counts = taken.clone();
        tokio::spawn(async move {
            // Each answers twice and ends, as when the helper is restarted.
            while let Ok((stream, _)) = listener.accept().await {
                counts.lock().unwrap().push(0);
                let mut stream = BufReader::new(stream);
                for _ in 0..2 {
                    let mut question = String::new();
                    stream.read_line(&mut question).await.unwrap();
                    *counts.lock().unwrap().last_mut().unwrap() += 1;
                    let answer = RuntimeAnswer {
                        socket: "/run/x.sock".into(),
                        is_guess: false,
                        listener: None,
                        took_micros: 1,
                        io_full_percent: None,
                        heard: protocol::Heard::NoSocket,
                    };
                    let line = protocol::encode_answer(Ok(answer));
                    stream.get_mut().write_all(&line).await.unwrap();
                }
            }
        });
        for _ in 0..5 {
            let request = RuntimeRequest {
                timeout_millis: 100,
            };
            let answer = client.clone().runtime(request).await.unwrap();
            assert_eq!(answer.heard, protocol::Heard::NoSocket);
        }
        assert_eq!(*taken.lock().unwrap(), [2, 2, 1]);
    }

    /// As at a start of ours, when everything is asked at once.
    #[tokio::test]
    async fn many_questions_at_once_are_none_too_many() {
        let (_folder, client) = real_helper(Peers::only([Uid::current().as_raw()]));
        let mut asking = tokio::task::JoinSet::new();
        for number in 0..24 {
            let client = client.clone();
            asking.spawn(async move {
                match number % 2 {
                    0 => client.kubelet().await.err(),
                    _ => client.credential(None).await.err(),
                }
            });
        }
        while let Some(answer) = asking.join_next().await {
            if let Some(HelperError::Refused { code, message, .. }) = answer.unwrap() {
                assert_ne!(code, Code::Busy, "{message}");
            }
        }
    }

    /// It is asked again while it is busy, and not for ever.
    #[tokio::test]
    async fn a_helper_that_is_busy_for_a_moment_is_asked_again() {
        for (busy_times, is_answered) in [(3, true), (9, false)] {
            let (_folder, client) = place();
            let listener = UnixListener::bind(client.socket()).unwrap();
            tokio::spawn(async move {
                for time in 0.. {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let refusal = protocol::Refusal::new(Code::Busy, "later");
                    let line = if time < busy_times {
                        protocol::encode_answer::<()>(Err(refusal))
                    } else {
                        protocol::encode_answer(Ok(KubeletFacts::answering(7)))
                    };
                    stream.write_all(&line).await.unwrap();
                }
            });
            assert_eq!(client.kubelet().await.is_ok(), is_answered, "{busy_times}");
        }
    }

    /// A helper that gets no thread says so in whatever it is asked.
    #[tokio::test]
    async fn a_fork_is_answered_even_where_there_is_no_thread_for_it() {
        let (_folder, client) = real_helper(Peers::only([Uid::current().as_raw()]));
        assert_eq!(client.fork().await.unwrap(), Forked::Possible);
        for (code, is_refused) in [(Code::ForkRefused, true), (Code::Busy, false)] {
            let refusal = protocol::Refusal::new(code, "no thread");
            let (_folder, client) = helper_that_says(protocol::encode_answer::<()>(Err(refusal)));
            let forked = client.fork().await;
            assert_eq!(
                matches!(forked, Ok(Forked::Refused)),
                is_refused,
                "{forked:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_helper_that_does_not_know_us_says_so() {
        let (_folder, client) = real_helper(Peers::only([Uid::current().as_raw() + 1]));
        for _ in 0..20 {
            let error = client.credential(None).await.unwrap_err();
            assert!(
                matches!(
                    error,
                    HelperError::Refused {
                        code: Code::Forbidden,
                        ..
                    }
                ),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn an_absent_helper_is_absent_at_once() {
        let (_folder, client) = place();
        let error = client.kubelet().await.unwrap_err();
        assert!(matches!(error, HelperError::Absent { .. }), "{error}");
        // A socket that nobody listens on any more.
        drop(UnixListener::bind(client.socket()).unwrap());
        let error = client.kubelet().await.unwrap_err();
        assert!(matches!(error, HelperError::Absent { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_hung_helper_is_given_up_at_the_deadline() {
        let (_folder, client) = place();
        let listener = UnixListener::bind(client.socket()).unwrap();
        assert_times_out(&client).await;
        // Nor does it matter that its queue is full.
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let _first = UnixStream::connect(client.socket()).await;
        assert_times_out(&client).await;
    }

    #[tokio::test]
    async fn what_is_no_answer_is_told_without_its_content() {
        let endless = vec![b'x'; MAX_ANSWER_BYTES * 2];
        for bytes in [
            b"".to_vec(),
            b"s3cret".to_vec(),
            b"s3cret\n".to_vec(),
            endless,
        ] {
            let (_folder, client) = helper_that_says(bytes);
            let error = client.kubelet().await.unwrap_err();
            assert!(
                matches!(
                    error,
                    HelperError::Protocol {
                        verb: "kubelet",
                        ..
                    }
                ),
                "{error}"
            );
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}
