//! Exec plugins: systemd runs the program that a kubeconfig names, as a unit of its own, and what it prints is the
//! credential.
//!
//! The helper itself starts nothing and has no network. Only a program that nobody but root can have put there is run.

use std::{
    io::{self, PipeReader, Read},
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Deserialize;
use serde_json::json;

use crate::{
    clock::Clock,
    host::{
        program,
        transient::{self, Run},
    },
    kubeconfig::{Access, Exec},
    kubelet::tree::Tree,
};

/// Starting it and reading what it prints.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
/// A token has 2 KiB, a certificate with its key 4.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;
/// Where a command without a slash is looked for.
const SEARCH: &[&str] = &[
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];
/// The versions of the protocol that are spoken.
const VERSIONS: &[&str] = &[
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];

#[derive(Deserialize)]
struct ExecCredential {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<Timestamp>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Has the plugin of `access` run, and puts in what it printed; the time until when that is good, if it said one.
///
/// # Errors
/// A sentence that quotes nothing of what it printed.
pub(super) fn fill(
    tree: &dyn Tree,
    kubeconfig: &Path,
    access: &mut Access,
    exec: &Exec,
) -> Result<Option<Timestamp>, String> {
    if !VERSIONS.contains(&exec.api_version.as_str()) {
        return Err(format!(
            "its exec plugin speaks `{}`; wanted one of {}",
            exec.api_version,
            VERSIONS.join(", ")
        ));
    }
    let program = find(tree, kubeconfig, &exec.command)?;
    let printed = run(&program, access, exec).map_err(|e| format!("{}: {e}", program.display()))?;
    read(&printed, access).map_err(|e| format!("{}: {e}", program.display()))
}

/// The program behind `command`, with links resolved.
fn find(tree: &dyn Tree, kubeconfig: &Path, command: &str) -> Result<PathBuf, String> {
    let folder = kubeconfig.parent().unwrap_or(Path::new("/"));
    let candidates: Vec<PathBuf> = if command.contains('/') {
        vec![folder.join(command)] // an absolute one stays as it is
    } else {
        SEARCH
            .iter()
            .map(|dir| Path::new(dir).join(command))
            .collect()
    };
    let found = candidates.iter().find_map(|path| tree.real_path(path).ok());
    let real = found.ok_or_else(|| {
        format!("its exec plugin `{command}` is not there; a command without a slash is looked for in {}", SEARCH.join(":"))
    })?;
    program::only_roots(tree, &real)?;
    Ok(real)
}

fn run(program: &Path, access: &Access, exec: &Exec) -> Result<Vec<u8>, String> {
    let (output, input) = io::pipe().map_err(|e| e.to_string())?;
    let mut environment = vec![
        format!("PATH={}", SEARCH.join(":")),
        "HOME=/root".to_owned(),
    ];
    for variable in exec.env.iter().flatten() {
        environment.push(format!("{}={}", variable.name, variable.value));
    }
    environment.push(format!("KUBERNETES_EXEC_INFO={}", info(access, exec)));
    let mut arguments = vec![program.to_string_lossy().into_owned()];
    arguments.extend(exec.args.iter().flatten().cloned());
    let end = Clock.now().uptime + DEADLINE;
    let unit = transient::start(Run {
        purpose: "credential",
        arguments,
        environment,
        output: input,
        deadline: DEADLINE,
    })?;
    let printed = read_until(output, end).map_err(|e| format!("{e}; see journalctl -u {unit}"))?;
    if printed.is_empty() {
        return Err(format!("it printed nothing; see journalctl -u {unit}"));
    }
    Ok(printed)
}

/// What the plugin is told, as client-go tells it.
fn info(access: &Access, exec: &Exec) -> serde_json::Value {
    let mut spec = json!({"interactive": false});
    if exec.provide_cluster_info {
        let mut cluster = json!({"server": access.server});
        if let Some(name) = &access.tls_server_name {
            cluster["tls-server-name"] = json!(name);
        }
        if let Some(authority) = &access.authority {
            cluster["certificate-authority-data"] = json!(authority);
        }
        spec["cluster"] = cluster;
    }
    json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec})
}

/// Until it is closed, or a whole answer is there; systemd closes its own end of the pipe a little later.
fn read_until(mut output: PipeReader, end: Duration) -> Result<Vec<u8>, String> {
    let mut printed = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let left = end.saturating_sub(Clock.now().uptime);
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let ready = poll(
            &mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)],
            timeout,
        );
        match ready {
            Ok(0) => return Err(format!("no answer within {} s", DEADLINE.as_secs())),
            Err(nix::errno::Errno::EINTR) => continue,
            Err(e) => return Err(e.to_string()),
            Ok(_) => {}
        }
        match output.read(&mut chunk) {
            Ok(0) => return Ok(printed),
            Ok(count) => printed.extend_from_slice(&chunk[..count]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.to_string()),
        }
        if printed.len() > MAX_OUTPUT_BYTES {
            return Err(format!("it printed over {MAX_OUTPUT_BYTES} bytes"));
        }
        if serde_json::from_slice::<serde::de::IgnoredAny>(&printed).is_ok() {
            return Ok(printed);
        }
    }
}

/// Puts what was printed into `access`.
fn read(printed: &[u8], access: &mut Access) -> Result<Option<Timestamp>, String> {
    let no = || "what it printed is no ExecCredential with a status".to_owned();
    let credential: ExecCredential = serde_json::from_slice(printed).map_err(|_| no())?;
    let status = credential.status.ok_or_else(no)?;
    let said = |text: Option<String>| text.filter(|text| !text.is_empty());
    let pem = |text: Option<String>| said(text).map(|pem| BASE64_STANDARD.encode(pem));
    access.token = said(status.token);
    access.certificate = pem(status.client_certificate_data);
    access.key = pem(status.client_key_data);
    if access.certificate.is_some() != access.key.is_some() {
        return Err(
            "it printed a certificate without key, or a key without certificate".to_owned(),
        );
    }
    if !access.has_credential() {
        return Err("it printed neither token nor certificate".to_owned());
    }
    Ok(status.expiration_timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::tree::MemoryTree;

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
    fn the_plugin_is_told_what_client_go_tells() {
        let access = Access {
            server: "https://a".to_owned(),
            authority: Some("Q0E=".to_owned()),
            ..Access::default()
        };
        let mut exec = Exec {
            api_version: VERSIONS[0].to_owned(),
            ..Exec::default()
        };
        insta::assert_snapshot!(info(&access, &exec), @r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}"#);
        exec.provide_cluster_info = true;
        insta::assert_snapshot!(info(&access, &exec), @r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"cluster":{"certificate-authority-data":"Q0E=","server":"https://a"},"interactive":false}}"#);
    }

    #[test]
    fn output_is_bounded_and_needs_no_end() {
        let end = || Clock.now().uptime + Duration::from_millis(200);
        let (output, mut input) = io::pipe().unwrap();
        io::Write::write_all(&mut input, b"{\"status\":{}}\n").unwrap();
        assert!(read_until(output, end()).is_ok(), "while it is still open");
        let (output, mut input) = io::pipe().unwrap();
        io::Write::write_all(&mut input, b"{").unwrap();
        assert!(read_until(output, end()).unwrap_err().contains("no answer"));
        let (output, mut input) = io::pipe().unwrap();
        let writing = std::thread::spawn(move || {
            io::Write::write_all(&mut input, &vec![b'x'; 2 * MAX_OUTPUT_BYTES]).ok();
        });
        let end = Clock.now().uptime + Duration::from_secs(5);
        assert!(read_until(output, end).unwrap_err().contains("over"));
        writing.join().unwrap();
    }

    #[test]
    fn a_command_is_found_where_it_is_said() {
        let tree = MemoryTree::new()
            .file("/etc/kubernetes/bin/own", "")
            .file("/usr/bin/aws", "");
        let kubeconfig = Path::new("/etc/kubernetes/kubelet.conf");
        for (command, path) in [
            ("aws", Some("/usr/bin/aws")),
            ("bin/own", Some("/etc/kubernetes/bin/own")),
            ("/usr/bin/aws", Some("/usr/bin/aws")),
            ("own", None),
        ] {
            let found = find(&tree, kubeconfig, command).ok();
            assert_eq!(found.as_deref(), path.map(Path::new), "{command}");
        }
    }
}
