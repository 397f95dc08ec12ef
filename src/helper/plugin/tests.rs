use std::{
    io::Write,
    os::unix::net::UnixListener,
    thread::{self, JoinHandle},
};

use tempfile::TempDir;

use super::*;
use crate::helper::testing::{host, write};

const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
const SOON: Duration = Duration::from_secs(5);

/// A service that answers one connection with this, and hands back what it was told.
fn service(says: &[u8]) -> (TempDir, PathBuf, JoinHandle<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let says = says.to_vec();
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&says).ok(); // it may have heard enough
        let mut told = Vec::new();
        stream.shutdown(std::net::Shutdown::Write).ok();
        stream.read_to_end(&mut told).ok();
        told
    });
    (folder, path, answering)
}

/// What is heard of a service that says this.
fn heard(says: &[u8]) -> Result<String, String> {
    let (_folder, path, answering) = service(says);
    let heard = ask(&path, Path::new(KUBECONFIG), SOON);
    assert_eq!(answering.join().unwrap(), b"", "it is told nothing");
    heard
}

fn read_text(text: &str) -> Result<(Access, Option<Timestamp>), String> {
    let mut access = Access::default();
    let expires_at = read(text.as_bytes(), &mut access)?;
    Ok((access, expires_at))
}

#[test]
fn what_a_plugin_prints_is_put_in() {
    let (access, expires_at) = read_text(
        r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",
            "status":{"token":"t","expirationTimestamp":"2026-11-21T10:00:00Z"}}"#,
    )
    .unwrap();
    assert_eq!(access.token.as_deref(), Some("t"));
    assert_eq!(expires_at.unwrap().to_string(), "2026-11-21T10:00:00Z");
    let (access, expires_at) =
        read_text(r#"{"status":{"clientCertificateData":"C","clientKeyData":"K"}}"#).unwrap();
    assert_eq!(
        (access.certificate.as_deref(), access.key.as_deref()),
        (Some("Qw=="), Some("Sw=="))
    );
    assert_eq!(expires_at, None);
}

#[test]
fn anything_else_is_refused_and_not_quoted() {
    for text in [
        "",
        "s3cret",
        "{}",
        r#"{"status":{"token":""}}"#,
        r#"{"status":{"token":["s3cret"]}}"#,
        r#"{"status":{"clientKeyData":"s3cret"}}"#,
        r#"{"status":{"token":"s3cret","expirationTimestamp":"s3cret"}}"#,
    ] {
        let error = read_text(text).err().unwrap_or_else(|| panic!("{text}"));
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[test]
fn a_command_is_found_where_it_is_said() {
    let (_folder, root) = host();
    write(&root, "/etc/kubernetes/bin/own", "");
    write(&root, "/usr/bin/aws", "");
    let kubeconfig = Path::new("/etc/kubernetes/kubelet.conf");
    for (command, path) in [
        ("aws", Some("/usr/bin/aws")),
        ("bin/own", Some("/etc/kubernetes/bin/own")),
        ("/usr/bin/aws", Some("/usr/bin/aws")),
        ("own", None),
    ] {
        let exec = Exec {
            api_version: VERSIONS[0].to_owned(),
            command: command.to_owned(),
            ..Exec::default()
        };
        let found = find(&root, kubeconfig, &exec).ok();
        assert_eq!(found.as_deref(), path.map(Path::new), "{command}");
    }
    // Others could have put it there.
    std::fs::set_permissions(
        root.join("/usr/bin"),
        std::os::unix::fs::PermissionsExt::from_mode(0o775),
    )
    .unwrap();
    let exec = Exec {
        api_version: VERSIONS[0].to_owned(),
        command: "aws".to_owned(),
        ..Exec::default()
    };
    let why = find(&root, kubeconfig, &exec).unwrap_err();
    assert!(why.contains("/usr/bin can be written"), "{why}");
}

#[test]
fn the_service_is_told_nothing_and_its_line_is_taken() {
    let said = format!("{{\"source\":\"{KUBECONFIG}\",\"printed\":\"{{\\n}}\"}}\n");
    assert_eq!(heard(said.as_bytes()).as_deref(), Ok("{\n}"));
    let said = format!("{{\"source\":\"{KUBECONFIG}\",\"error\":\"why not\"}}\n");
    assert_eq!(heard(said.as_bytes()), Err("why not".to_owned()));
    assert_eq!(
        heard(b"{\"source\":null,\"error\":\"none\"}\n"),
        Err("none".to_owned())
    );
}

#[test]
fn another_kubeconfigs_credential_is_refused_and_not_quoted() {
    let said = "{\"source\":\"/etc/nodevigil/kubeconfig\",\"printed\":\"s3cret\"}\n";
    let why = heard(said.as_bytes()).unwrap_err();
    assert!(
        why.contains("/etc/nodevigil/kubeconfig") && !why.contains("s3cret"),
        "{why}"
    );
    for said in [
        "{\"source\":null,\"printed\":\"s3cret\"}\n",
        "{\"printed\":\"s3cret\"}\n",
        "{\"source\":\"/etc/kubernetes/kubelet.conf\",\"printed\":[\"s3cret\"]}\n",
        "{\"source\":\"/etc/kubernetes/kubelet.conf\",\"printed\":\"s3cret",
        "s3cret\n",
        "",
    ] {
        let why = heard(said.as_bytes()).unwrap_err();
        assert!(why.contains("nodevigil-plugin.service"), "{said}: {why}");
        assert!(!why.contains("s3cret"), "{why}");
    }
}

#[test]
fn a_service_that_is_away_silent_or_talks_for_ever_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let why = ask(&path, Path::new(KUBECONFIG), SOON).unwrap_err();
    assert!(why.contains("start nodevigil-plugin.socket"), "{why}");
    assert!(why.contains(&path.display().to_string()), "{why}");
    // Connected, and nobody takes it.
    let _listener = UnixListener::bind(&path).unwrap();
    let asked = Clock.now().uptime;
    let why = ask(&path, Path::new(KUBECONFIG), Duration::from_millis(100)).unwrap_err();
    assert!(why.contains("no answer"), "{why}");
    assert!(Clock.now().uptime.saturating_sub(asked) < SOON);
    let why = heard(&vec![b'x'; 2 * MAX_ANSWER_BYTES]).unwrap_err();
    assert!(why.contains("over"), "{why}");
}
