use super::*;
use crate::{
    bootstrap::{CloudInit, Evidence, RecordedResult, Stage, Timeline, assess},
    clock::Clock,
    config::Settings,
    helper::testing::{host, kubeconfig_with_token, write},
};

const STATUS: &str = "/run/cloud-init/status.json";
const OUTPUT: &str = "/var/log/cloud-init-output.log";

fn cloud_init_of(status: &str) -> CloudInit {
    let (_folder, root) = host();
    write(&root, STATUS, status);
    cloud_init::look(&root).0
}

/// As cloud-init 22.4 writes it.
fn status(stage: &str, finished: &str, errors: &str) -> String {
    let done = r#"{"errors": [], "finished": 4.2, "start": 1.0}"#;
    format!(
        r#"{{"v1": {{"datasource": "DataSourceNoCloud", "init-local": {done}, "init": {done}, "modules-config": {done},
        "modules-final": {{"errors": [{errors}], "finished": {finished}, "start": 5.0}}, "stage": {stage}}}}}"#
    )
}

#[test]
fn cloud_inits_own_word_is_read() {
    let (_folder, root) = host();
    assert_eq!(cloud_init::look(&root), (CloudInit::Absent, None));
    write(&root, "/run/cloud-init/enabled", "");
    assert!(matches!(
        cloud_init::look(&root).0,
        CloudInit::Running { is_last: false, .. }
    ));
    let running = cloud_init_of(&status(r#""modules-final""#, "null", ""));
    assert!(
        matches!(&running, CloudInit::Running { is_last: true, stage, .. } if stage == "modules-final")
    );
    let early = r#"{"v1": {"init": {"errors": [], "finished": null, "start": 1.0}, "modules-final": {"start": null}, "stage": "init"}}"#;
    let early = cloud_init_of(early);
    assert!(matches!(&early, CloudInit::Running { is_last: false, stage, .. } if stage == "init"));
    let failed = cloud_init_of(&status(
        "null",
        "9.5",
        r#""('scripts_user', RuntimeError('1 failed'))""#,
    ));
    assert!(
        matches!(&failed, CloudInit::Finished { errors } if errors[0].contains("scripts_user"))
    );
    for nonsense in ["", "{}", "[1]", r#"{"v1": 7}"#, "\u{0}"] {
        // No panic, and no end that nobody saw.
        assert!(
            !matches!(cloud_init_of(nonsense), CloudInit::Finished { .. }),
            "{nonsense}"
        );
    }
}

#[test]
fn a_stage_of_no_known_name_steers_no_terminal_and_tells_no_secret() {
    let running = cloud_init_of(&status(r#""x\u001b[31m token=abcdefgh""#, "null", ""));
    let CloudInit::Running { stage, .. } = running else {
        panic!("{running:?}")
    };
    assert!(stage.starts_with("x\u{241b}[31m token=***"), "{stage}");
    assert!(!stage.contains("abcdefgh"), "{stage}");
}

#[test]
fn what_kubeadm_said_is_found_at_the_end_and_holds_no_token() {
    let (_folder, root) = host();
    let noise = "[preflight] Running pre-flight checks\n".repeat(2000);
    let failure = "error execution phase preflight: couldn't validate the identity of the API Server: could not find a JWS signature in the cluster-info ConfigMap for token ID \"abcdef\"";
    write(
        &root,
        OUTPUT,
        &format!(
            "{noise}{failure}\nTo see the stack trace of this error execute with --v=5\ntoken abcdef.0123456789abcdef\n"
        ),
    );
    let words = cloud_init::look(&root).1.unwrap();
    assert!(
        words.starts_with("error execution phase preflight: couldn't validate"),
        "{words}"
    );
    write(
        &root,
        OUTPUT,
        "error: token abcdef.0123456789abcdef is bad\n",
    );
    let words = cloud_init::look(&root).1.unwrap();
    assert!(!words.contains("0123456789abcdef"), "{words}");
    write(&root, OUTPUT, "all is well\n");
    assert_eq!(cloud_init::look(&root).1, None);
}

#[test]
fn a_host_before_its_join_is_told_from_one_that_bootstraps() {
    let (_folder, root) = host();
    write(&root, "/usr/bin/kubelet", "");
    write(
        &root,
        "/etc/systemd/system/kubelet.service",
        "[Service]\nExecStart=/usr/bin/kubelet --bootstrap-kubeconfig=/b.conf --kubeconfig=/k.conf --cloud-provider=external --hostname-override=N1\n",
    );
    let ask = || look(&root, &Wanted::default(), &ConfigRequest::default()).unwrap();
    let seen = ask();
    assert!(seen.awaits_join);
    assert_eq!(seen.credential, CredentialSeen::Missing);
    assert_eq!(
        (seen.external, seen.node_name.as_deref()),
        (Some(true), Some("n1"))
    );
    assert!(seen.findings.len() <= MAX_FINDINGS);
    write(&root, "/b.conf", &kubeconfig_with_token("t"));
    let seen = ask();
    assert!(!seen.awaits_join);
    assert_eq!(
        seen.credential,
        CredentialSeen::Bootstrap {
            file: "/b.conf".to_owned()
        }
    );
    // A kubelet that rotates certificates writes its kubeconfig before it has one.
    let pem = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    let user = format!("client-certificate: {pem}, client-key: {pem}");
    let rotating = kubeconfig_with_token("t").replace("token: t", &user);
    write(&root, "/k.conf", &rotating);
    assert_eq!(
        ask().credential,
        CredentialSeen::Bootstrap {
            file: "/b.conf".to_owned()
        }
    );
    let line = serde_json::to_vec(&seen).unwrap();
    assert!(
        line.len() < crate::helper::protocol::MAX_ANSWER_BYTES / 4,
        "{}",
        line.len()
    );
}

#[test]
fn the_record_is_kept_for_who_wrote_it() {
    let (_folder, root) = host();
    write(&root, "/proc/sys/kernel/random/boot_id", "b-1\n");
    let now = Clock.now();
    let timeline = Timeline::new(
        now.uptime,
        Duration::from_mins(10),
        Settings::default().patience(),
    );
    let progress = assess(&Evidence::default());
    let record = Record::new(By::Daemon, RecordedResult::Late, &timeline, &progress, now);
    keep(&root, &record).unwrap();
    let text = root.read_text(path(By::Daemon), 65_536).unwrap();
    let read: Record = serde_json::from_str(&text).unwrap();
    assert_eq!((read.boot_id.as_str(), read.by), ("b-1", By::Daemon));
    assert_eq!(read.stuck.as_deref(), Some(Stage::Runtime.name()));
    assert!(root.read(path(By::Command), 99).is_err());
}
