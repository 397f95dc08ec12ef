use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

#[test]
fn secrets_become_stars_of_the_same_width() {
    for (text, wanted) in [
        ("K3S_TOKEN=K10ab::c", "K3S_TOKEN=********"),
        ("token: \"abc\"", "token: \"***\""),
        ("Environment=\"A=1\" \"K3S_TOKEN=x y\"", "Environment=\"A=1\" \"K3S_TOKEN=* y\""),
        ("http_proxy=http://me:pw@proxy:3128/", "http_proxy=http://*****@proxy:3128/"),
        ("\"password\": \"abc\",", "\"password\": \"***\","),
        ("password='two words' x", "password='*********' x"),
        ("--authentication-token-webhook=true --token-file=/x", "--authentication-token-webhook=true --token-file=/x"),
        ("--token=abc --v=2", "--token=*** --v=2"),
        ("--token abc --v=2", "--token *** --v=2"),
        ("--token --v=2", "--token --v=2"),
        (
            "k3s \\\n\tagent \\\n\t'--token' \\\n\t'abc' \\\n\t'--v=2'",
            "k3s \\\n\tagent \\\n\t'--token' \\\n\t'***' \\\n\t'--v=2'",
        ),
        ("\"--token\" \"--v=2\"", "\"--token\" \"--v=2\""),
        ("https://ghp@github.com/a", "https://***@github.com/a"),
        ("the token is good", "the token is good"),
        ("see http://example.org:80/a", "see http://example.org:80/a"),
        ("TOKEN", "TOKEN"),
        ("é token=ü", "é token=*"),
        ("Authorization: Bearer abc.d", "Authorization: Bearer *****"),
        (r#"err="body {\"token\":\"abc\"}""#, r#"err="body {\"token\":\"***\"}""#),
        ("client-key-data: abc", "client-key-data: ***"),
        ("x eyJhbGciOi.eyJz y", "x *************** y"),
        ("join abcdef.0123456789abcdef", "join abcdef.****************"),
        ("a -----BEGIN K-----\nab\n-----END K----- b", "a ************************************ b"),
        ("a -----BEGIN K-----ab", "a *******************"),
    ] {
        assert_eq!(hide_secrets(text), wanted);
    }
}

#[test]
fn the_word_after_a_flag_of_a_secret_is_one() {
    let words = ["k3s", "--token", "K10ab", "--token-file", "/x", "--password=ab"];
    let hidden = ["k3s", "--token", "*****", "--token-file", "/x", "--password=**"];
    assert_eq!(hide_in_words(words), hidden);
    assert_eq!(hide_in_words(["--token", "--v=2"]), ["--token", "--v=2"]);
    let words = ["--token=my-token", "agent"];
    assert_eq!(hide_in_words(words), ["--token=********", "agent"]);
}

#[test]
fn secrets_of_urls_and_headers_become_stars() {
    const SECRET: &str = "5aVeWombat07xyz";
    for (text, what_is_left) in [
        (
            "GET https://b.s3.amazonaws.com/k?X-Amz-Algorithm=AWS4&X-Amz-Credential=§&X-Amz-Date=1&X-Amz-Signature=§",
            "X-Amz-Date=1",
        ),
        ("https://b.s3/k?x-amz-security-token=§&x=1", "&x=1"),
        ("https://storage.googleapis.com/k?X-Goog-Credential=§&X-Goog-Expires=9&X-Goog-Signature=§", "Expires=9"),
        ("https://a.blob.core.windows.net/k?sv=2022-11-02&sr=b&sig=§%3D&se=2026", "sv=2022-11-02&sr=b"),
        ("https://a.blob/k?SIG=§", "a.blob"),
        ("https://b.s3/k?AWSAccessKeyId=§&Expires=1&Signature=§", "Expires=1"),
        (r#"{"u":"https://a/k?sv=1\u0026sig=§\u0026se=2"}"#, "se=2"),
        ("https://a/?u=https%3A%2F%2Fb%2Fk%3Fsv%3D1%26sig%3D§", "sv%3D1"),
        ("https://a/k?sv=1&amp;sig=§", "sv=1"),
        ("https://a/k?access_token=§#part", "#part"),
        ("https://a/k?Token=§&b=1", "b=1"),
        ("https://a/k?user=me&PASSWORD=§", "user=me"),
        ("https://a/k?key=§", "https://a/k"),
        ("k?pwd=§&auth=§", "k?pwd="),
        ("GoogleAccessId=a;shared_key: §", "AccessId=a"),
        ("Authorization: Bearer §", "Authorization"),
        ("authorization: basic §", "authorization"),
        ("-H 'Proxy-Authorization: Basic §=='", "-H"),
        ("Authorization:[Bearer §] Accept:[a]", "Accept"),
        (r#"{"Authorization":["Basic §"]}"#, "Basic"),
        (r#"{"authorization":"§"}"#, "authorization"),
        ("authorization: token §", "token"),
        ("Authorization: AWS4-HMAC-SHA256 Credential=§/2026/s3, SignedHeaders=host, Signature=§abc", "host"),
        ("sent Bearer § to it", "to it"),
        ("sent Basic §= to it", "to it"),
        ("sent basic §; then", "then"),
        ("token is eyJhbGciOi.eyJz§.§", "token is"),
        ("postgres://me:§@db/x", "db/x"),
        ("amqps+tls://me:§@db:5671/", "db:5671"),
        ("http://me:a@§@db/x", "db/x"),
        ("http://me:a/§@db/x", "db/x"),
        ("ftp://me:§?@db", "db"),
        ("redis://:§@db/0", "db/0"),
        ("mount //fs -o password=§,vers=3", "mount"),
        ("--token=§ --v=2", "--v=2"),
        ("--token-auth --password § --v=2", "--v=2"),
        ("-token § -v 2", "-v 2"),
        ("--bootstrap-token '§' x", "x"),
        ("SSH_KEY=§ A=1", "A=1"),
        ("DB_CREDENTIALS=\"§\" A=1", "A=1"),
        ("TOKEN_OF_ME=§ A=1", "A=1"),
        ("AWS_ACCESS_KEY_ID=§ A=1", "A=1"),
        ("AccountName=a;AccountKey=§==", "AccountName=a"),
    ] {
        let text = text.replace('§', SECRET);
        let shown = hide_secrets(&text);
        assert!(!shown.contains(SECRET), "{text}: {shown}");
        assert!(shown.contains(what_is_left), "{text}: {shown}");
    }
}

#[test]
fn what_is_no_secret_stays() {
    for text in [
        r#"run.go:74] "command failed" err="failed to parse kubelet flag: unknown flag: --no-such-flag""#,
        "open /var/lib/kubelet/config.yaml: no such file or directory",
        "container 5f2c8d1e9a7b4c3d2e1f0a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e3f2a1b0c9d",
        "pod \"coredns-5d78c9869d-abcde\" node.kubernetes.io/not-ready:NoSchedule",
        r#"kubelet.go:2431] "Error getting node" err="node \"worker-1\" not found""#,
        r#"server.go:1] "Unable to authenticate the request" err="[invalid bearer token, service account token has expired]""#,
        r#"pod_workers.go:1298] "Error syncing pod, skipping" pod="kube-system/kube-proxy-x7k2p" podUID="0f3c1f7e-7d6c-4c5e-8f55-3d1b2a4c5d6e""#,
        "Pulling image registry.k8s.io/pause@sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097",
        "docker-pullable://pause@sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097",
        "Get \"https://10.0.0.1:6443/api/v1/nodes/worker-1?resourceVersion=0&timeout=10s\": dial tcp: connection refused",
        "https://[fd00::1]:6443/healthz@now and http://example.org/a@b?c=d@e",
        "unix:///run/containerd/containerd.sock",
        "/var/lib/Kubelet1/plugins/registry/Kubernetes/io/csi/Volumes/x1",
        "a basic check of the bearer token, the Basic rule, Bearer authentication",
        r#"www-authenticate: Bearer realm="https://auth.example/token",service="r""#,
        r#""Syncing" key="default/nginx" logger="controller" sig=15 signature=short"#,
        "{\"authorization\":{\"mode\":\"Webhook\"},\"authentication\":{}}",
        "authorization: Webhook\n  mode: Webhook",
        "write it as KEY=VALUE, TOKEN=VALUE or --token=VALUE",
        "--tls-private-key-file=/a/b --token-file=/x AWS_WEB_IDENTITY_TOKEN_FILE=/var/run/x",
        "KEYBOARD=us MONKEY=1 --authentication-token-webhook=true",
        "sd_notify READY=1 MAINPID=12 INVOCATION_ID=5f2c8d1e9a7b4c3d2e1f0a9b8c7d6e5f",
        "taints key:node.kubernetes.io/disk-pressure key=x",
    ] {
        assert_eq!(hide_secrets(text), text);
    }
}

#[test]
fn a_sanitized_text_is_one_bounded_line() {
    assert_eq!(sanitize_line("a\ntoken=abcdefgh\x1b[m", 99), "a\u{240a}token=***");
    assert_eq!(sanitize_line("password: abcdef", 99), "password: ***");
    assert!(sanitize_line(&"é".repeat(99), 50).len() <= 50);
}

#[test]
fn names_of_variables_tell_what_is_secret() {
    for name in
        ["TOKEN", "K3S_TOKEN", "token_of_me", "API_KEY", "SSH_KEY", "KEY", "DB_PASSWD", "MY_SECRET_ID", "CREDENTIALS"]
    {
        assert!(is_secret_variable(name), "{name}");
    }
    for name in [
        "TOKEN_FILE",
        "KEYBOARD",
        "MONKEY",
        "KUBELET_EXTRA_ARGS",
        "SECRET_NAME",
        "KUBELET_CREDENTIAL_PROVIDER_ARGS",
        "PATH",
        "ENCRYPTION_KEY_FILE",
    ] {
        assert!(!is_secret_variable(name), "{name}");
    }
}

#[test]
fn nothing_steers_a_terminal() {
    assert_eq!(escape_controls("a\x1b[31mb\tc\u{202e}d\r\0é"), "a\u{241b}[31mb c\u{fffd}d\u{240d}\u{2400}é");
}

/// What secrets and the words before them are made of.
#[rustfmt::skip]
const PARTS: &[&str] = &[
    "token", "TOKEN", "secret", "pass", "word", "key", "API", "data", "authorization", "Auth", "bearer", "Basic", "sig", "nature",
    "credential", "amz", "realm", "https://", "unix://", "@", "/", "-", "--", "_", "=", ":", "%3d", "%26", "?", "&", "\\u0026", " ",
    "\"", "'", "\\", "[", "{", "\n", "\t", "\r", "é", "S3cretS3cretS3cretS3cret", "x", "VALUE", "FILE", "*",
];

proptest! {
    #[test]
    fn any_text_keeps_its_columns(text in ".*") {
        let shown = escape_controls(&hide_secrets(&text));
        prop_assert_eq!(shown.chars().count(), text.chars().count());
    }

    /// Whether there may be one is found out without the expressions. Blanks and quotes alone are no secret.
    #[test]
    fn a_text_without_places_has_no_secret_in_one(parts in vec(select(PARTS), 1..8)) {
        let text = parts.concat();
        let is_blank = |secret: &Range<usize>| text[secret.clone()].trim_matches([' ', '\'', '"', '\\']).is_empty();
        let has_none = || secrets::secrets_in_places(text.as_bytes()).iter().all(is_blank);
        prop_assert!(secrets::may_have_places(&text) || has_none(), "{}", text);
    }

    #[test]
    fn no_secret_is_shown_wherever_it_stands(
        before in "[ -~]{0,40}",
        secret in "[A-Z][a-z][0-9][A-Za-z0-9]{9,40}",
        after in "( [ -~]{0,40})?",
        place in 0_usize..14,
    ) {
        let (open, close) = [
            ("token=", ""),
            ("--token ", ""),
            ("password: \"", "\""),
            ("K3S_TOKEN='", "'"),
            ("Authorization: Bearer ", ""),
            ("https://user:", "@host/"),
            ("-----BEGIN RSA PRIVATE KEY-----\n", "\n-----END RSA PRIVATE KEY-----"),
            ("eyJ", ".abc"),
            ("{\\\"clientSecret\\\":\\\"", "\\\"}"),
                ("https://a/b?sv=1&sig=", "&se=1"),
                ("https://a/b?X-Amz-Signature=", ""),
                ("amqp://:", "@host/"),
                ("Authorization: Basic ", ""),
                ("SSH_KEY=", ""),
        ][place];
        let text = format!("{before} {open}{secret}{close}{after}");
        let shown = hide_secrets(&text);
        prop_assert!(!shown.contains(&secret), "{} in {}", secret, shown);
    }
}

/// Found by a fuzz target: what has no value of its own kept the secrets after it in sight.
#[test]
fn a_flag_without_a_value_uncovers_nothing_behind_it() {
    for text in [
        "--password\n--token=Wombat7inTheYard",
        "?]m --password\n--token=Wombat7inTheYard",
        "x --token\r --token Wombat7inTheYard",
        "--token --password -x\npassword: \"Wombat7inTheYard\"",
    ] {
        let shown = hide_secrets(text);
        assert!(!shown.contains("Wombat7"), "{shown:?}");
    }
}

/// A search that starts again after each of them would take minutes.
#[test]
fn a_text_that_repeats_the_looks_of_a_secret_is_searched_once() {
    for text in ["eyJ".repeat(40_000), "eyJx".repeat(40_000), "-----BEGIN".repeat(12_000)] {
        assert_eq!(few_stars(&hide_secrets(&text)), "***");
    }
}

#[test]
fn the_secret_of_every_example_becomes_stars() {
    for place in secrets::PLACES {
        let shown = hide_secrets(place.example);
        let is_none = place.example == "TOKEN_FILE=/run/token";
        assert_eq!(shown.contains("***"), !is_none, "{shown}");
        assert!(!shown.contains("S3cret"), "{shown}");
    }
}
