use crate::kubelet::resolve::Inputs;
use crate::kubelet::snapshot::Lifecycle;
use crate::kubelet::tree::MemoryTree;
use crate::rules::tests::support::{findings_with, found, kubeadm};

const CONFIG: &str = "/var/lib/kubelet/config.yaml";
const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\nrotateCertificates: true\n";

fn with(more: &str) -> MemoryTree {
    kubeadm().file(CONFIG, format!("{HEAD}{more}"))
}

fn one(tree: &MemoryTree, rule: &str) -> String {
    found(tree, Inputs::default(), rule).join("|")
}

#[test]
fn a_file_that_the_kubelet_needs_must_be_there() {
    let authority = "authentication:\n  x509:\n    clientCAFile: /etc/kubernetes/pki/ca.crt\n";
    let found_in = one(&with(authority), "CF009");
    assert!(found_in.starts_with(&format!("fatal {CONFIG}:7: ")) && found_in.contains("/etc/kubernetes/pki/ca.crt"));
    assert_eq!(one(&with(authority).file("/etc/kubernetes/pki/ca.crt", "x"), "CF009"), "");
    let empty = one(&with(authority).file("/etc/kubernetes/pki/ca.crt", ""), "CF009");
    assert!(empty.starts_with(&format!("fatal {CONFIG}:7: ")) && empty.contains("which is empty"), "{empty}");
    // Before a node has joined, kubeadm has not written it.
    let image = with(authority).without("/etc/kubernetes/kubelet.conf");
    let before = Inputs { lifecycle: Lifecycle::BeforeFirstStart, ..Inputs::default() };
    assert!(found(&image, before, "CF009").is_empty());
    // A path of the file is relative to the file.
    let relative = "authentication: {x509: {clientCAFile: ca.crt}}\n";
    assert_eq!(one(&with(relative).file("/var/lib/kubelet/ca.crt", "x"), "CF009"), "");
    // Of one of the two alone the kubelet reads nothing; up to 1.35 it exits.
    assert_eq!(one(&with("tlsCertFile: /a.crt\n"), "CF009"), "");
    let of_release = |release: &str| {
        let inputs = Inputs { version: release.parse().ok(), ..Inputs::default() };
        found(&with("tlsCertFile: /a.crt\n"), inputs, "CF009").join("")
    };
    assert!(of_release("1.35.4").contains("without tlsPrivateKeyFile"), "{}", of_release("1.35.4"));
    assert_eq!(of_release("1.36.3"), "");
    assert_eq!(one(&with("tlsCertFile: /a.crt\ntlsPrivateKeyFile: /a.key\n"), "CF009").matches("fatal").count(), 2);
    let half = "KUBELET_EXTRA_ARGS=--image-credential-provider-config=/etc/default/kubelet\n";
    assert!(
        one(&kubeadm().file("/etc/default/kubelet", half), "CF009")
            .contains("without --image-credential-provider-bin-dir")
    );
}

#[test]
fn every_file_without_a_dot_in_front_is_a_static_pod() {
    let pod = "kind: Pod\nmetadata: {name: etcd, namespace: kube-system}\n";
    let tree =
        with("staticPodPath: /m\n").file("/m/etcd.yaml", pod).file("/m/.etcd.yaml.swp", pod).file("/m/README", "x");
    assert_eq!(one(&tree, "CP006"), "");
    let backup = one(&tree.clone().file("/m/etcd.yaml.backup", pod), "CP006");
    assert!(
        backup.starts_with("warning /m/etcd.yaml.backup:1: ") && backup.contains("as /m/etcd.yaml does"),
        "{backup}"
    );
    let moved = one(&tree.file("/m/apiserver.off", pod.replace("etcd", "apiserver")), "CP006");
    assert!(moved.contains("the kubelet runs it"), "{moved}");
}

#[test]
fn a_dropin_of_logind_that_sorts_last_counts() {
    let tree = with("shutdownGracePeriod: 60s\n");
    assert_eq!(one(&tree, "CP007"), "");
    let ubuntus = "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf";
    let found_in = one(&tree.clone().file(ubuntus, "[Login]\nInhibitDelayMaxSec=30\n"), "CP007");
    assert!(found_in.starts_with(&format!("warning {CONFIG}:5: ")) && found_in.contains(ubuntus), "{found_in}");
    for (path, text) in [
        (ubuntus, "[Login]\nInhibitDelayMaxSec=2min\n"),
        ("/usr/lib/systemd/logind.conf.d/10-own.conf", "[Login]\nInhibitDelayMaxSec=30\n"),
        ("/etc/systemd/logind.conf", "[Login]\nInhibitDelayMaxSec=30\n"),
    ] {
        assert_eq!(one(&tree.clone().file(path, text), "CP007"), "", "{path}");
    }
}

#[test]
fn pods_need_the_clusters_name_server() {
    assert!(one(&with(""), "NW004").starts_with(&format!("warning {CONFIG}: ")));
    assert_eq!(one(&with("clusterDNS: [10.96.0.10]\n"), "NW004"), "");
    assert!(one(&with("clusterDNS: [10.96.0.10\n"), "NW004").is_empty(), "a file that cannot be read is not known");
}

#[test]
fn the_api_server_is_not_asked_through_a_proxy() {
    const FILE: &str = "/etc/default/kubelet";
    let given = |text: &str| one(&kubeadm().file(FILE, text), "NW005");
    let alone = given("HTTPS_PROXY=http://proxy:3128\n");
    assert!(alone.starts_with(&format!("warning {FILE}:1: ")) && alone.contains("API server 10.0.0.1"), "{alone}");
    let other = given("HTTPS_PROXY=http://proxy:3128\nNO_PROXY=localhost,192.0.2.0/30\n");
    assert!(other.starts_with(&format!("warning {FILE}:2: ")), "{other}");
    assert_eq!(given("HTTPS_PROXY=http://proxy:3128\nno_proxy=a, 10.0.0.1\n"), "");
    assert_eq!(given("HTTP_PROXY=http://proxy:3128\n"), "", "it is for http:// alone");
    for (entry, is_of) in [
        ("10.0.0.0/24", true),
        ("10.0.0.0/32", false),
        ("0.0.0.0/0", true),
        ("10.0.0.1", true),
        ("10.0.0.1:6443", true),
        ("10.0.0.1:443", false),
        ("fd00::/8", false),
        ("*", true),
        ("", false),
    ] {
        assert_eq!(super::excepts(entry, "10.0.0.1", "6443"), is_of, "{entry}");
    }
    for (entry, is_of) in [("example.com", true), (".example.com", true), ("*.example.com", true), ("ample.com", false)]
    {
        assert_eq!(super::excepts(entry, "api.example.com", "6443"), is_of, "{entry}");
    }
}

const PROVIDERS: &str = "/etc/cp/config.yaml";
const ONE_PROVIDER: &str = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: ecr\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  matchImages: ['*.amazonaws.com']\n  defaultCacheDuration: 12h\n";

fn judged_by(text: &str, release: &str) -> String {
    judged_with("", text, release)
}

fn judged_with(more: &str, text: &str, release: &str) -> String {
    let flags = format!(
        "KUBELET_EXTRA_ARGS=--image-credential-provider-config=/etc/cp/config.yaml --image-credential-provider-bin-dir=/etc/cp {more}\n"
    );
    let inputs = Inputs { version: release.parse().ok(), ..Inputs::default() };
    let tree = kubeadm().file("/etc/default/kubelet", flags).file(PROVIDERS, text).file("/etc/cp/ecr", "");
    found(&tree, inputs, "CF009").join("|")
}

#[test]
fn a_configuration_of_credential_providers_that_the_kubelet_refuses() {
    const PATH: &str = PROVIDERS;
    let text = ONE_PROVIDER;
    let judged = |text: &str| judged_by(text, "1.33.4");
    assert_eq!(judged(text), "");
    for (old, new, line, why) in [
        ("matchImages", "matchImage", 6, "there is no field matchImage. Did you mean matchImages?"),
        ("  defaultCacheDuration: 12h\n", "", 4, "defaultCacheDuration is missing"),
        ("12h", "twelve", 4, "must be a duration"),
        ("name: ecr", "name: gcr", 4, "/etc/cp/gcr does not exist"),
        (
            "credentialprovider.kubelet.k8s.io/v1",
            "credentialprovider.kubelet.k8s.io/v2",
            4,
            "must be credentialprovider",
        ),
        ("kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v2", 1, "must be kubelet.config.k8s.io/v1"),
        ("kind: CredentialProviderConfig", "kind: KubeletConfiguration", 1, "the kind is not"),
        ("providers:", "providers: {", 4, ""),
    ] {
        let found = judged(&text.replacen(old, new, 1));
        let is_at = found.contains(&format!("fatal {PATH}:{line}: "))
            || line == 1 && found.contains(&format!("fatal {PATH}: "));
        assert!((is_at || why.is_empty()) && found.starts_with("fatal") && found.contains(why), "{new}: {found}");
    }
    for bare in [&text[text.find("providers:").unwrap()..], ""] {
        let bare = judged(bare);
        assert!(bare.starts_with("fatal") && bare.contains("kind: Cred") && !bare.contains('|'), "one mistake: {bare}");
    }
    assert!(judged(&format!("{text}{}", text.split_once("providers:\n").unwrap().1)).contains("given twice"));
    let k3s = MemoryTree::new()
        .file(
            "/etc/systemd/system/k3s-agent.service",
            "[Service]\nExecStart=/usr/local/bin/k3s agent --server=https://a:6443\n",
        )
        .file("/var/lib/rancher/credentialprovider/bin/ecr", "")
        .file("/var/lib/rancher/credentialprovider/config.yaml", text.replace("12h", "twelve"));
    assert!(one(&k3s, "CF009").contains("credentialprovider/config.yaml:4: "), "k3s finds it by itself");
    // The file is read strictly since 1.32; what a slip was meant to set is missing before, too.
    for release in ["1.31.2", ""] {
        let more = judged_by(&text.replace("  default", "  extra: 1\n  default"), release);
        assert!(more.starts_with(&format!("warning {PATH}:7: ")), "{release}: {more}");
        assert!(more.contains("there is no field extra. From 1.32 on it exits instead"), "{more}");
        let slip = judged_by(&text.replace("matchImages", "matchImage"), release);
        assert!(slip.starts_with(&format!("fatal {PATH}:4: ")) && slip.contains("matchImages is missing"), "{slip}");
        assert!(slip.contains(&format!("|warning {PATH}:6: ")), "{slip}");
    }
}

#[test]
fn a_directory_of_credential_providers_counts_as_one_file_since_1_34() {
    let flags =
        "KUBELET_EXTRA_ARGS=--image-credential-provider-config=/etc/cp --image-credential-provider-bin-dir=/usr\n";
    let tree = kubeadm().file("/etc/default/kubelet", flags).file("/usr/ecr", "").file("/usr/acr", "");
    let judged = |tree: &MemoryTree, release: &str| {
        found(tree, Inputs { version: release.parse().ok(), ..Inputs::default() }, "CF009").join("|")
    };
    let empty = tree.clone().file("/etc/cp/README", "");
    assert!(judged(&empty, "1.35.2").contains("the directory has no file"));
    let both = tree.file("/etc/cp/a.yaml", ONE_PROVIDER).file("/etc/cp/b.yml", ONE_PROVIDER.replace("ecr", "acr"));
    assert_eq!([judged(&both, "1.35.2"), judged(&both, "")], ["", ""]);
    assert!(judged(&both, "1.33.4").starts_with("fatal /etc/cp: ") && judged(&both, "1.33.4").contains("since 1.34"));
    let none = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders: []\n";
    assert_eq!(judged(&both.clone().file("/etc/cp/c.json", none), "1.35.2"), "");
    let twice = judged(&both.clone().file("/etc/cp/c.json", ONE_PROVIDER), "1.35.2");
    assert!(twice.starts_with("fatal /etc/cp/c.json:4: ") && twice.contains("given twice"), "{twice}");
    let slip = judged(&both.file("/etc/cp/b.yml", ONE_PROVIDER.replace("12h", "twelve")), "1.35.2");
    assert!(slip.starts_with("fatal /etc/cp/b.yml:4: "), "{slip}");
    assert!(judged_by(none, "1.35.2").starts_with(&format!("fatal {PROVIDERS}: ")));
}

#[test]
fn token_attributes_are_complete_or_absent() {
    const GATE: &str = "--feature-gates=KubeletServiceAccountTokenForCredentialProviders";
    let on = format!("{GATE}=true");
    let judged = |text: &str| judged_with(&on, text, "1.33.4");
    let attributes =
        format!("{ONE_PROVIDER}  tokenAttributes: {{serviceAccountTokenAudience: a, requireServiceAccount: true}}\n");
    assert_eq!(judged(&attributes), "");
    assert!(
        judged(&attributes.replacen(".k8s.io/v1\n  match", ".k8s.io/v1beta1\n  match", 1)).contains("needs apiVersion")
    );
    let other = judged(&attributes.replacen(
        "credentialprovider.kubelet.k8s.io/v1\n  match",
        "kubelet.config.k8s.io/v1beta1\n  match",
        1,
    ));
    assert!(other.contains("apiVersion") && !other.contains('|'), "one mistake: {other}");
    let lacking = attributes.replace("serviceAccountTokenAudience: a, ", "");
    assert!(
        judged(&lacking).starts_with(&format!("fatal {PROVIDERS}:8: "))
            && judged(&lacking).contains("Audience is missing")
    );
    assert_eq!(judged(&format!("{ONE_PROVIDER}  tokenAttributes: null\n")), "");
    // An alpha field in 1.33, with its gate off; unknown before.
    assert!(judged_by(&attributes, "1.33.4").contains("needs the feature gate KubeletServiceAccountToken"));
    assert!(judged_by(&attributes, "1.32.4").starts_with(&format!("fatal {PROVIDERS}:8: ")));
    assert!(judged_by(&attributes, "1.31.2").starts_with("warning"), "it skips the field");
    assert_eq!(judged_by(&attributes, ""), "", "of a release that is not known nothing is said");
}

#[test]
fn token_attributes_need_a_cache_type_since_1_34() {
    let with = |more: &str| {
        format!(
            "{ONE_PROVIDER}  tokenAttributes: {{serviceAccountTokenAudience: a, requireServiceAccount: false{more}}}\n"
        )
    };
    let judged = |more: &str| judged_by(&with(more), "1.34.4");
    for (more, why) in [
        ("", "cacheType is missing"),
        (", cacheType: token", "'token' and must be ServiceAccount or Token"),
        (
            ", cacheType: Token, requiredServiceAcountAnnotationKeys: [a]",
            "Did you mean requiredServiceAccountAnnotationKeys?",
        ),
        (", cacheType: Token, requiredServiceAccountAnnotationKeys: [a]", "needs requireServiceAccount: true"),
        (", cacheType: Token, optionalServiceAccountAnnotationKeys: [b, a, b]", "the annotation key 'b'"),
        (", cacheType: Token, optionalServiceAccountAnnotationKeys: [A/b, a_/b]", "the annotation key 'a_/b'"),
    ] {
        let found = judged(more);
        assert!(found.starts_with(&format!("fatal {PROVIDERS}:8: ")) && found.contains(why), "{more}: {found}");
    }
    for sound in [", cacheType: ServiceAccount", ", cacheType: Token, optionalServiceAccountAnnotationKeys: [a]"] {
        assert_eq!(judged(sound), "", "{sound}");
    }
    let both =
        ", cacheType: Token, requiredServiceAccountAnnotationKeys: [a], optionalServiceAccountAnnotationKeys: [a]";
    assert!(judged_by(&with(both).replace("false", "true"), "1.34.4").contains("the annotation key 'a', which"));
    let quoted = judged_by(&with(", cacheType: Token").replace("false", "'false'"), "1.34.4");
    assert!(quoted.contains("requireServiceAccount must be true or false"), "{quoted}");
    let gate = "--feature-gates=KubeletServiceAccountTokenForCredentialProviders";
    let off = judged_with(&format!("{gate}=false"), &with(", cacheType: Token"), "1.34.4");
    assert!(off.contains("which is off"), "{off}");
    let early = judged_with(&format!("{gate}=true"), &with(", cacheType: Token"), "1.33.4");
    assert!(early.starts_with("fatal") && early.contains("no field tokenAttributes.cacheType before 1.34"), "{early}");
}

#[test]
fn pods_in_kubeadms_directory_are_read_from_no_other() {
    let pod = "kind: Pod\nmetadata: {name: kube-apiserver, namespace: kube-system}\n";
    let place = |path: &str| with(path).file("/etc/kubernetes/manifests/kube-apiserver.yaml", pod);
    let typo = one(&place("staticPodPath: /etc/kubernetes/manifest\n"), "CP006");
    assert!(typo.starts_with(&format!("error {CONFIG}:5: ")) && typo.contains("kube-system/kube-apiserver"), "{typo}");
    assert!(one(&place(""), "CP006").contains("staticPodPath is not set"));
    assert_eq!(one(&place("staticPodPath: /etc/kubernetes/manifests\n"), "CP006"), "");
    let moved = place("staticPodPath: /m\n").file("/m/kube-apiserver.yaml", pod);
    assert_eq!(one(&moved, "CP006"), "", "the old directory is not read any more");
    let by_flag =
        place("").file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--pod-manifest-path=/etc/kubernetes/manifest\n");
    let finding = findings_with(&by_flag, Inputs::default()).into_iter().find(|one| one.rule == "CP006").unwrap();
    assert!(finding.fix.unwrap().contains("`--pod-manifest-path=/etc/kubernetes/manifests`"));
}

#[test]
fn what_is_no_address_is_no_name_server() {
    assert!(one(&with("clusterDNS: ['10.96.0.10:53']\n"), "NW004").contains("'10.96.0.10:53', which is no IP address"));
    assert_eq!(one(&with("clusterDNS: [10.96.0.10, 'fd00::a']\n"), "NW004"), "");
}
