#![expect(
    clippy::disallowed_methods,
    reason = "tests build a little host in a folder, and ask in ways that the helper does not"
)]

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
};

use nix::unistd::getuid;
use tempfile::TempDir;

use super::*;
use crate::{
    helper::{
        OWN_KUBECONFIG,
        testing::{host, kubeconfig_with_token, write},
    },
    kubeconfig::ExecVariable,
};

const KUBELETS: &str = "/etc/kubernetes/kubelet.conf";
const SOON: Duration = Duration::from_secs(5);

fn limits() -> Limits {
    Limits {
        asker: getuid().as_raw(),
        deadline: SOON,
        idle: Duration::from_millis(50),
        at_least: Duration::ZERO,
    }
}

fn with_plugin(command: &str) -> String {
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: {command}, interactiveMode: Never}}"
    );
    kubeconfig_with_token("t").replace("token: t", &exec)
}

/// A host whose kubelet has a plugin that runs this, and a listening socket.
fn node(script: &str) -> (TempDir, Root, PathBuf, UnixListener) {
    let (folder, root) = host();
    write(&root, KUBELETS, &with_plugin("credential"));
    program(&root, "/usr/bin/credential", script);
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    (folder, root, socket, listener)
}

fn program(root: &Root, path: &str, script: &str) {
    write(root, path, &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(root.join(path), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Asks and has one connection answered; all that is said.
fn ask(root: &Root, socket: &Path, listener: &UnixListener, limits: Limits) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    serve_one(root, listener, limits).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

/// The same, as an answer.
fn answered(root: &Root, socket: &Path, listener: &UnixListener, limits: Limits) -> Answer {
    let line = ask(root, socket, listener, limits);
    assert_eq!(line.matches('\n').count(), 1, "{line}");
    serde_json::from_str(&line).unwrap()
}

fn error(answer: &Answer) -> &str {
    match &answer.word {
        Word::Error(why) => why,
        Word::Printed(text) => panic!("printed {text}"),
    }
}

/// Only root's programs are started, and here all is ours.
fn is_root() -> bool {
    getuid().is_root()
}

#[test]
fn it_says_what_the_kubelets_plugin_printed() {
    let (_folder, root, socket, listener) = node("echo '{\"kind\": \"a\"}'; exec sleep 8");
    let answer = answered(&root, &socket, &listener, limits());
    assert_eq!(answer.source.as_deref(), Some(Path::new(KUBELETS)));
    if is_root() {
        let printed = Word::Printed("{\"kind\": \"a\"}\n".to_owned());
        assert_eq!(answer.word, printed);
    } else {
        assert!(error(&answer).contains("others than root"), "{answer:?}");
    }
}

#[test]
fn what_the_asker_says_is_not_read() {
    let (_folder, root, socket, listener) = node("echo 1");
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream
        .write_all(b"{\"own\": \"/root/.kube/config\", \"command\": \"/bin/sh\"}\n")
        .unwrap();
    serve_one(&root, &listener, limits()).unwrap();
    let mut line = vec![0; 4096];
    let count = stream.read(&mut line).unwrap();
    let answer: Answer = serde_json::from_slice(&line[..count]).unwrap();
    assert_eq!(answer.source.as_deref(), Some(Path::new(KUBELETS)));
}

#[test]
fn the_agents_own_goes_first_if_it_has_a_plugin() {
    let (_folder, root, socket, listener) = node("echo 1");
    let source = |text: &str| {
        write(&root, OWN_KUBECONFIG, text);
        answered(&root, &socket, &listener, limits())
            .source
            .unwrap()
    };
    assert_eq!(source(&with_plugin("other")), Path::new(OWN_KUBECONFIG));
    for text in [kubeconfig_with_token("t"), String::new()] {
        assert_eq!(source(&text), Path::new(KUBELETS), "{text}");
    }
}

#[test]
fn without_a_plugin_nothing_is_run() {
    let (_folder, root, socket, listener) = node("echo 1");
    write(&root, KUBELETS, &kubeconfig_with_token("s3cret"));
    let answer = answered(&root, &socket, &listener, limits());
    assert!(
        error(&answer).contains("names no exec plugin"),
        "{answer:?}"
    );
    assert!(!error(&answer).contains("s3cret"), "{answer:?}");
    write(&root, KUBELETS, &with_plugin("missing"));
    let answer = answered(&root, &socket, &listener, limits());
    assert!(
        error(&answer).contains("`missing` is not there"),
        "{answer:?}"
    );
}

#[test]
fn another_user_is_told_nothing_and_runs_nothing() {
    let (folder, root, socket, listener) = node("echo 1 >\"$(dirname \"$0\")/ran\"; echo 1");
    let others = Limits {
        asker: getuid().as_raw() + 1,
        ..limits()
    };
    assert_eq!(ask(&root, &socket, &listener, others), "");
    // Nor does somebody who has hung up.
    drop(UnixStream::connect(&socket).unwrap());
    serve_one(&root, &listener, limits()).unwrap();
    let ran = || folder.path().join("usr/bin/ran").is_file();
    assert!(!ran());
    answered(&root, &socket, &listener, limits());
    assert_eq!(ran(), is_root());
}

#[test]
fn one_connection_is_taken_and_none_is_waited_for() {
    let (_folder, root, socket, listener) = node("echo 1");
    let began = Clock.now().uptime;
    serve_one(&root, &listener, limits()).unwrap();
    assert!(Clock.now().uptime.saturating_sub(began) < SOON);
    let (mut first, second) = (
        UnixStream::connect(&socket).unwrap(),
        UnixStream::connect(&socket).unwrap(),
    );
    serve_one(&root, &listener, limits()).unwrap();
    first.read_to_end(&mut Vec::new()).unwrap();
    second.set_nonblocking(true).unwrap();
    let waits = (&second).read(&mut [0]).unwrap_err();
    assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn it_lives_so_long_that_systemd_never_counts_too_many_starts() {
    let (_folder, root, socket, listener) = node("echo 1");
    let began = Clock.now().uptime;
    let patient = Limits {
        at_least: AT_LEAST,
        ..limits()
    };
    answered(&root, &socket, &listener, patient);
    assert!(Clock.now().uptime.saturating_sub(began) >= AT_LEAST);
    // TriggerLimitIntervalSec= and TriggerLimitBurst= of systemd.socket(5).
    assert!(AT_LEAST * 20 > Duration::from_secs(2));
}

fn ran(path: &str, words: &[&str], deadline: Duration) -> Result<String, String> {
    let exec = Exec {
        api_version: "client.authentication.k8s.io/v1".to_owned(),
        args: Some(words.iter().map(|word| (*word).to_owned()).collect()),
        env: Some(vec![ExecVariable {
            name: "CLOUD".to_owned(),
            value: "a b".to_owned(),
        }]),
        ..Exec::default()
    };
    run(Path::new(path), &Access::default(), &exec, deadline)
}

#[test]
fn a_program_has_its_arguments_and_this_environment_alone() {
    let environment = ran("/usr/bin/env", &[], SOON).unwrap();
    insta::assert_snapshot!(environment, @r#"
    CLOUD=a b
    HOME=/root
    KUBERNETES_EXEC_INFO={"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    "#);
    let words = ran("/usr/bin/printf", &["%s|", "$HOME", "a b", ""], SOON).unwrap();
    assert_eq!(words, "$HOME|a b||");
    let why = ran("/bin/cat", &[], SOON).unwrap_err();
    assert!(why.contains("printed nothing"), "its input is empty: {why}");
}

#[test]
fn its_time_and_its_output_are_bounded() {
    let began = Clock.now().uptime;
    let why = ran("/bin/sleep", &["3"], Duration::from_millis(100)).unwrap_err();
    assert!(why.contains("no answer within"), "{why}");
    let why = ran("/usr/bin/yes", &[], SOON).unwrap_err();
    assert!(why.contains("over 65536 bytes"), "{why}");
    assert!(Clock.now().uptime.saturating_sub(began) < SOON);
    let why = ran("/usr/bin/printf", &["\\377"], SOON).unwrap_err();
    assert!(why.contains("no text"), "{why}");
    let why = ran("/does/not/exist", &["s3cret"], SOON).unwrap_err();
    assert!(
        why.contains("could not be started") && !why.contains("s3cret"),
        "{why}"
    );
}

#[test]
fn the_plugin_is_told_what_client_go_tells() {
    let access = Access {
        server: "https://a".to_owned(),
        authority: Some("Q0E=".to_owned()),
        ..Access::default()
    };
    let mut exec = Exec {
        api_version: "client.authentication.k8s.io/v1".to_owned(),
        ..Exec::default()
    };
    insta::assert_snapshot!(info(&access, &exec), @r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}"#);
    exec.provide_cluster_info = true;
    insta::assert_snapshot!(info(&access, &exec), @r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"cluster":{"certificate-authority-data":"Q0E=","server":"https://a"},"interactive":false}}"#);
}
