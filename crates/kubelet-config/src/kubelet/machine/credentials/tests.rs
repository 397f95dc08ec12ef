use serde_json::Value;

use super::*;
use crate::kubelet::machine::certificate::tests::pem;
use crate::kubelet::tree::MemoryTree;

const PATH: &str = "/etc/kubernetes/kubelet.conf";
const CURRENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

fn settings(pairs: &[(&str, Value)]) -> Settings {
    let mut pairs = pairs.to_vec();
    pairs.push(("--kubeconfig", PATH.into()));
    super::super::tests::settings(&pairs)
}

fn text(user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- {{name: x, context: {{cluster: none, user: none}}}}\n- {{name: c, context: {{cluster: k, user: u}}}}\nclusters:\n- {{name: k, cluster: {{certificate-authority-data: czNjcmV0, server: 'https://10.0.0.1:6443'}}}}\nusers:\n- name: u\n  user: {user}\n"
    )
}

fn read(tree: MemoryTree, user: &str) -> Kubeconfig {
    let tree = tree.file(PATH, text(user));
    match kubeconfig(&tree, &settings(&[]), "--kubeconfig") {
        FileState::Present(found) => found,
        other => panic!("{user}: {other:?}"),
    }
}

#[test]
fn each_kind_of_credential_is_told_and_none_is_kept() {
    for (user, credential) in [
        ("{token: s3cret}", ClientCredential::Token),
        ("{tokenFile: /t/s3cret-file}", ClientCredential::Token),
        ("{username: a, password: s3cret}", ClientCredential::Token),
        (
            "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: aws, args: [s3cret]}}",
            ClientCredential::Exec,
        ),
        ("{auth-provider: {name: s3cret}}", ClientCredential::Exec),
        ("{client-certificate-data: czNjcmV0, client-key-data: czNjcmV0}", ClientCredential::CertificateData),
        ("{token: '', client-certificate: ''}", ClientCredential::Nothing),
        ("{}", ClientCredential::Nothing),
    ] {
        let found = read(MemoryTree::new(), user);
        assert_eq!(found.credential, credential, "{user}");
        assert_eq!(found.server.as_deref(), Some("https://10.0.0.1:6443"));
        let shown = format!("{found:?}").replace("s3cret-file", "");
        assert!(!shown.contains("s3cret"), "{user}: {shown}");
    }
}

#[test]
fn a_certificate_is_followed_from_the_kubeconfigs_directory() {
    let certificate = pem("system:node:a", 2025, 2026, false);
    let tree = MemoryTree::new().file("/etc/kubernetes/pki/a.pem", certificate.clone());
    let found = read(tree, "{client-certificate: pki/a.pem, client-key: pki/a.key}");
    let read_certificate = found.certificate.unwrap();
    assert_eq!(read_certificate.common_name.as_deref(), Some("system:node:a"));
    assert_eq!(read_certificate.at.to_string(), "/etc/kubernetes/pki/a.pem");
    assert_eq!(found.missing_files, ["/etc/kubernetes/pki/a.key"]);
    assert_eq!(found.files.len(), 2);

    let user = format!("{{client-certificate: {CURRENT}, client-key: {CURRENT}}}");
    let found = read(MemoryTree::new(), &user);
    assert_eq!(found.missing_files, [CURRENT]);
    let problem = found.certificate_problem.unwrap();
    assert_eq!(problem, format!("{CURRENT} does not exist"));
}

#[test]
fn a_renewed_certificate_is_told_beside_inline_data() {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    let given = BASE64_STANDARD.encode(pem("system:node:given", 2024, 2025, false));
    let user = format!("{{client-certificate-data: {given}, client-key-data: eA==}}");
    let tree = MemoryTree::new().file(PATH, text(&user)).file(CURRENT, pem("system:node:renewed", 2025, 2026, false));
    let names = |rotates: bool| {
        let settings = settings(&[("rotateCertificates", rotates.into())]);
        match kubeconfig(&tree, &settings, "--kubeconfig") {
            FileState::Present(found) => {
                (found.certificate.unwrap().common_name.unwrap(), found.renewed.and_then(|renewed| renewed.common_name))
            }
            other => panic!("{other:?}"),
        }
    };
    let given = "system:node:given".to_owned();
    assert_eq!(names(true), (given.clone(), Some("system:node:renewed".to_owned())));
    assert_eq!(names(false), (given, None));
    let FileState::Present(found) = of_running(&tree, PATH, None) else { panic!("it is there") };
    assert_eq!(found.certificate.unwrap().common_name.as_deref(), Some("system:node:renewed"));
}

#[test]
fn what_is_no_kubeconfig_says_why_and_quotes_nothing() {
    let reason = |text: &str| {
        let tree = MemoryTree::new().file(PATH, text);
        match kubeconfig(&tree, &settings(&[]), "--kubeconfig") {
            FileState::Bad { at, reason } => format!("{at} {reason}"),
            other => panic!("{text}: {other:?}"),
        }
    };
    let kubelet = reason("kind: KubeletConfiguration\nport: 1\n");
    assert_eq!(kubelet, format!("{PATH} is a KubeletConfiguration, not a kubeconfig"));
    assert!(reason("kind: Config\nusers: [s3cret\n").starts_with(&format!("{PATH}:")));
    for text in ["", "{}", "kind: Config\ncurrent-context: c\n", "kind: Config\nusers: [s3cret]\n"] {
        assert!(!reason(text).contains("s3cret"));
    }
    assert!(reason(&text("{}").replace("server:", "sever:")).contains("no cluster with a server"));
    let none = MemoryTree::new();
    assert!(matches!(kubeconfig(&none, &settings(&[]), "--kubeconfig"), FileState::Missing { .. }));
    assert_eq!(kubeconfig(&none, &settings(&[]), "--bootstrap-kubeconfig"), FileState::NotAsked);
}

#[test]
fn what_client_go_refuses_is_no_kubeconfig() {
    let reason = |text: String| match kubeconfig(&MemoryTree::new().file(PATH, text), &settings(&[]), "--kubeconfig") {
        FileState::Bad { reason, .. } => reason,
        _ => String::new(),
    };
    let of_user = |user: &str| reason(text(user));
    let exec = |version: &str, more: &str| {
        of_user(&format!("{{exec: {{apiVersion: client.authentication.k8s.io/{version}, command: aws{more}}}}}"))
    };
    let of_cluster =
        |cluster: &str| reason(text("{token: t}").replace("certificate-authority-data: czNjcmV0", cluster));
    for (found, why) in [
        (of_cluster("certificate-authority-data: '<s3cret>'"), "has a certificate-authority-data that is not base64"),
        (
            of_cluster("certificate-authority-data: cA==, certificate-authority: /ca.crt"),
            "has both certificate-authority",
        ),
        (
            of_cluster("certificate-authority: /ca.crt, insecure-skip-tls-verify: true"),
            "has both insecure-skip-tls-verify",
        ),
        (of_cluster("proxy-url: 's3cret@192.0.2.3:3128'"), "has a proxy-url that does not begin with"),
        (of_user("{client-certificate: /c, client-certificate-data: cA==}"), "has both client-certificate"),
        (exec("v1alpha1", ""), "plugin of client.authentication.k8s.io/v1alpha1"),
        (exec("v1", ""), "without interactiveMode"),
        (of_user("{exec: {command: aws}}"), "without apiVersion"),
        (of_user("{exec: {apiVersion: client.authentication.k8s.io/v1}}"), "without command"),
    ] {
        assert!(found.contains(why) && !found.contains("s3cret"), "{why}: {found}");
    }
    // It decodes what the current context does not use, and no more than that.
    let and = |list: &str, item: &str| {
        reason(text("{token: t}").replace(&format!("{list}:\n"), &format!("{list}:\n- {{name: old, {item}}}\n")))
    };
    let key = and("users", "user: {client-key-data: '<s3cret>'}");
    assert_eq!(key, "has a client-key-data that is not base64");
    let authority = and("clusters", "cluster: {server: 'https://b', certificate-authority-data: '<s3cret>'}");
    assert_eq!(authority, "has a certificate-authority-data that is not base64");
    // Kubelet 1.34.4: `illegal base64 data at input byte 4`, `cannot unmarshal number into`.
    for bad in ["cA== cA==", "'cA== '", "12345678", "true"] {
        assert_eq!(and("users", &format!("user: {{client-key-data: {bad}}}")), key, "{bad}");
    }
    for sound in [
        and("users", "user: {client-key-data: \"czNj\\ncmV0\\n\"}"),
        and("users", "user: {client-key-data: null}"),
        and("clusters", "cluster: {certificate-authority: /none, certificate-authority-data: cA==}"),
        and("users", "user: {exec: {command: aws}}"),
        exec("v1beta1", ""),
        exec("v1", ", interactiveMode: Never"),
        of_cluster("insecure-skip-tls-verify: true"),
        of_cluster("proxy-url: 'HTTP://proxy:3128'"),
        reason(
            text("{token: t}")
                .replace("https://", "http://")
                .replace("server:", "insecure-skip-tls-verify: true, server:"),
        ),
        of_user("{token: t, client-key: /k, client-key-data: cA==}"),
        of_cluster("certificate-authority-data: cB=="),
        of_cluster("certificate-authority-data: DATA+OMITTED"),
        of_cluster("certificate-authority-data: \"cA==\\n\""),
    ] {
        assert_eq!(sound, "");
    }
}

#[test]
fn the_serving_certificate_is_the_configured_one_or_the_clusters() {
    let path = "/var/lib/kubelet/pki/kubelet-server-current.pem";
    let certificate = pem("system:node:a", 2025, 2026, false);
    let tree = MemoryTree::new().file(path, certificate.clone()).file("/own.crt", "s3cret");
    assert_eq!(serving(&tree, &settings(&[])), FileState::NotAsked);
    let bootstrap = settings(&[("serverTLSBootstrap", true.into())]);
    let FileState::Present(found) = serving(&tree, &bootstrap) else {
        panic!("it is there");
    };
    assert_eq!(found.at.to_string(), path);
    let elsewhere = settings(&[("serverTLSBootstrap", true.into()), ("--cert-dir", "/c".into())]);
    assert!(matches!(serving(&tree, &elsewhere), FileState::Missing { .. }));
    let own = settings(&[("tlsCertFile", "/own.crt".into())]);
    assert!(matches!(serving(&tree, &own), FileState::Bad { .. }));
}
