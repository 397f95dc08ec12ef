//! The server on a real socket, with peers that behave and peers that do not.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
};

use nix::unistd::Uid;
use tempfile::TempDir;

use super::*;
use crate::{
    clock::Clock,
    helper::{
        line::READ_DEADLINE,
        protocol::{
            Credential, Heard, KubeletFacts, MAX_REQUEST_BYTES, RuntimeAnswer, RuntimeRequest,
            decode_answer, encode_request,
        },
        testing::{Process, host, kubeconfig_with_token, write},
    },
};

/// A helper on a socket in a folder of its own, with one kubelet (812) on its little host.
struct Helper {
    _folder: TempDir,
    socket: PathBuf,
}

impl Helper {
    fn start(peers: Peers) -> Self {
        let (folder, root) = host();
        write(&root, "/k", &kubeconfig_with_token("t0ken"));
        let argv = ["kubelet", "--kubeconfig=/k", "--healthz-port=1"];
        Process::kubelet(812, &argv).write(&root);
        let socket = folder.path().join("helper.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        // It ends with the test's process.
        thread::spawn(move || Server::new(root, Vec::new(), peers).serve(&listener));
        Self {
            _folder: folder,
            socket,
        }
    }

    fn for_us() -> Self {
        Self::start(Peers::only([Uid::current().as_raw()]))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the server is tested without the agent's client, which never misbehaves"
    )]
    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        stream
    }

    /// Sends bytes as they are and reads the answer's line.
    fn ask(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // A peer that is refused may be cut off while it speaks.
        let _ = stream.write_all(bytes);
        hear(&stream)
    }
}

/// How long ago `start` was.
fn since(start: Duration) -> Duration {
    Clock.now().uptime.saturating_sub(start)
}

fn question(request: &Request) -> Vec<u8> {
    encode_request(request).unwrap()
}

fn hear(stream: &UnixStream) -> Vec<u8> {
    let mut line = Vec::new();
    BufReader::new(stream).read_until(b'\n', &mut line).unwrap();
    line
}

fn code(line: &[u8]) -> Code {
    decode_answer::<serde::de::IgnoredAny>(line)
        .unwrap()
        .unwrap_err()
        .code
}

#[test]
fn each_verb_answers_on_a_real_socket() {
    let helper = Helper::for_us();
    let line = helper.ask(&question(&Request::Kubelet));
    let facts: KubeletFacts = decode_answer(&line).unwrap().unwrap();
    assert_eq!(facts.kubeconfig, Some("/k".into()));
    let line = helper.ask(&question(&Request::Credential {
        own: false,
        known: None,
    }));
    let credential: Credential = decode_answer(&line).unwrap().unwrap();
    assert_eq!(credential.access.unwrap().token.as_deref(), Some("t0ken"));
}

#[test]
fn another_user_is_refused_each_time() {
    let nobody_like_us = Uid::current().as_raw() + 1;
    let helper = Helper::start(Peers::only([nobody_like_us]));
    for _ in 0..3 {
        let line = helper.ask(&question(&Request::Credential {
            own: false,
            known: None,
        }));
        assert_eq!(code(&line), Code::Forbidden);
    }
}

#[test]
fn what_is_no_request_is_refused() {
    let helper = Helper::for_us();
    for garbage in [
        &b"\n"[..],
        b"GET / HTTP/1.1\r\n",
        b"\xff\xfe\n",
        b"{\"version\":2}\n",
        b"{\"version\":2,\"verb\":\"kubelets\"}\n",
        b"{\"version\":2,\"verb\":\"journal\",\"rke2\":\"1; rm\"}\n",
    ] {
        assert_eq!(code(&helper.ask(garbage)), Code::BadRequest);
    }
    let mut long = vec![b' '; MAX_REQUEST_BYTES];
    long.push(b'\n');
    assert_eq!(code(&helper.ask(&long)), Code::BadRequest);
    let endless = vec![b'x'; 1024 * 1024];
    assert_eq!(code(&helper.ask(&endless)), Code::BadRequest);
}

/// On one connection as often as it likes, and about nothing else.
#[test]
fn about_the_runtime_a_peer_asks_again() {
    let helper = Helper::for_us();
    let request = question(&Request::Runtime(RuntimeRequest {
        timeout_millis: 200,
    }));
    let ask = |mut stream: &UnixStream| -> Heard {
        stream.write_all(&request).unwrap();
        let answer: RuntimeAnswer = decode_answer(&hear(stream)).unwrap().unwrap();
        answer.heard
    };
    let kept: Vec<_> = (0..MAX_KEPT).map(|_| helper.connect()).collect();
    for _ in 0..3 {
        for stream in &kept {
            assert_eq!(ask(stream), Heard::NoSocket);
        }
        // None of them takes a place from those who come and go.
        let line = helper.ask(&question(&Request::Kubelet));
        assert!(decode_answer::<KubeletFacts>(&line).unwrap().is_ok());
    }
    let one_more = helper.connect();
    assert_eq!(ask(&one_more), Heard::NoSocket);
    assert!(hear(&one_more).is_empty(), "closed");
    let mut first = &kept[0];
    first.write_all(&question(&Request::Kubelet)).unwrap();
    assert!(hear(first).is_empty(), "closed");
}

#[test]
fn silent_peers_make_it_busy_until_their_deadline() {
    let helper = Helper::for_us();
    let silent: Vec<_> = (0..MAX_CONNECTIONS).map(|_| helper.connect()).collect();
    let request = question(&Request::Kubelet);
    let start = Clock.now().uptime;
    assert_eq!(code(&helper.ask(&request)), Code::Busy);
    assert!(since(start) < READ_DEADLINE / 2);
    for stream in &silent {
        assert_eq!(code(&hear(stream)), Code::BadRequest);
    }
    // The threads are ending: their places are free at once or very soon.
    while code_or_none(&helper.ask(&request)) == Some(Code::Busy) {
        thread::sleep(Duration::from_millis(10));
        assert!(since(start) < READ_DEADLINE * 4);
    }
}

fn code_or_none(line: &[u8]) -> Option<Code> {
    decode_answer::<serde::de::IgnoredAny>(line)
        .unwrap()
        .err()
        .map(|refusal| refusal.code)
}

#[test]
fn a_trickling_peer_is_cut_off_at_the_deadline() {
    let helper = Helper::for_us();
    let mut stream = helper.connect();
    let start = Clock.now().uptime;
    while stream.write_all(b" ").is_ok() {
        thread::sleep(Duration::from_millis(100));
        assert!(since(start) < READ_DEADLINE * 3);
    }
}
