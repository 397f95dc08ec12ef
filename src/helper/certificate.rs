//! The verb `certificate`: how long the client certificate is good that the kubelet shows to the API server. Its folder is
//! root's.

use std::time::Duration;

use super::{
    credential, process,
    protocol::{ClientCertificate, Code, Refusal, Verb},
};
use crate::{
    config::KubeletSettings,
    host::{files::Root, trusted::RootsTree},
    kubelet::machine::{ClientCredential, Needed, of_running},
};

/// The verb.
pub const VERB: Verb = Verb {
    name: "certificate",
    sentence: "Tells from when and until when the kubelet's client certificate is good.",
    deadline: Duration::from_secs(2),
};

/// Answers for the kubeconfig that the running kubelet was started with, else for that in the well-known places.
/// [`Code::NoCredential`]: there is no certificate that could expire.
pub fn answer(root: &Root, settings: &KubeletSettings) -> Result<ClientCertificate, Refusal> {
    let kubelet = process::find(root, settings)?;
    let (path, _) = credential::kubelets(root, kubelet.as_ref())?;
    let flags = kubelet.and_then(|kubelet| kubelet.flags());
    let cert_dir = flags.and_then(|flags| flags.cert_dir);
    let tree = RootsTree::new(root)
        .map_err(|error| Refusal::new(Code::Unreadable, format!("the host's files: {error}")))?;
    let read = of_running(&tree, &path.to_string_lossy(), cert_dir.as_deref());
    let shown = path.display();
    let (code, what) = match read {
        Needed::Present(found) => match (found.certificate, found.certificate_problem) {
            (Some(certificate), _) => {
                return Ok(ClientCertificate {
                    file: certificate.at.file.to_string(),
                    not_before_secs: certificate.not_before_secs,
                    not_after_secs: certificate.not_after_secs,
                });
            }
            (None, Some(problem)) => (Code::BadFile, problem),
            (None, None) => {
                let what = match found.credential {
                    ClientCredential::Exec => "a program's credential",
                    ClientCredential::Token => "a token",
                    _ => "no credential",
                };
                (Code::NoCredential, format!("it has {what}, no certificate"))
            }
        },
        Needed::Missing { .. } | Needed::NotAsked => {
            (Code::NoCredential, "it is not there yet".to_owned())
        }
        Needed::Bad { reason, .. } => (Code::BadFile, format!("it {reason}")),
    };
    Err(Refusal::new(code, format!("kubeconfig {shown}: {what}")))
}

#[cfg(test)]
mod tests {
    use base64::{Engine, prelude::BASE64_STANDARD};

    use super::*;
    use crate::{
        helper::testing::{Process, host, kubeconfig_with_token, write},
        kubelet::machine::pem,
    };

    const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
    const CURRENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    /// The 1st of January.
    const IN_2026: i64 = 1_767_225_600;
    const IN_2027: i64 = 1_798_761_600;

    fn ask(root: &Root) -> Result<ClientCertificate, Refusal> {
        answer(root, &KubeletSettings::default())
    }

    fn with_user(user: &str) -> String {
        kubeconfig_with_token("t").replace("token: t", user)
    }

    fn ends(answer: Result<ClientCertificate, Refusal>) -> i64 {
        answer.unwrap().not_after_secs
    }

    #[test]
    fn a_rotated_certificate_is_followed_through_the_kubeconfig() {
        let (_folder, root) = host();
        let user = format!("client-certificate: {CURRENT}, client-key: {CURRENT}");
        write(&root, KUBECONFIG, &with_user(&user));
        write(&root, CURRENT, &pem("system:node:a", 2025, 2026, false));
        Process::kubelet(9, &["kubelet", "--kubeconfig", KUBECONFIG]).write(&root);
        let found = ask(&root).unwrap();
        assert_eq!(
            (found.file.as_str(), found.not_after_secs),
            (CURRENT, IN_2026)
        );
        write(&root, CURRENT, &pem("system:node:a", 2026, 2027, false));
        let renewed = ask(&root).unwrap();
        assert_eq!(renewed.not_before_secs, IN_2026);
        assert_eq!(renewed.not_after_secs, IN_2027);
    }

    #[test]
    fn of_one_inline_and_a_renewed_one_the_longer_counts() {
        let (_folder, root) = host();
        let data = BASE64_STANDARD.encode(pem("system:node:a", 2025, 2026, false));
        let user = format!("client-certificate-data: {data}, client-key-data: aw==");
        write(&root, KUBECONFIG, &with_user(&user));
        assert_eq!(ends(ask(&root)), IN_2026);
        // A leftover of a time in which the kubelet renewed its certificates.
        write(&root, CURRENT, &pem("system:node:a", 2024, 2025, false));
        assert_eq!(ends(ask(&root)), IN_2026);
        write(
            &root,
            "/pki/kubelet-client-current.pem",
            &pem("a", 2026, 2027, false),
        );
        let argv = ["kubelet", "--cert-dir=/pki", "--kubeconfig", KUBECONFIG];
        Process::kubelet(9, &argv).write(&root);
        assert_eq!(ends(ask(&root)), IN_2027);
    }

    #[test]
    fn without_a_certificate_there_is_none_to_expire() {
        let (_folder, root) = host();
        let code = |root| ask(root).unwrap_err().code;
        assert_eq!(code(&root), Code::NoCredential);
        write(&root, KUBECONFIG, &kubeconfig_with_token("t"));
        assert_eq!(code(&root), Code::NoCredential);
        let exec = "exec: {apiVersion: v1, command: aws}";
        write(&root, KUBECONFIG, &with_user(exec));
        assert_eq!(code(&root), Code::NoCredential);
    }

    #[test]
    fn a_spoilt_one_is_no_certificate_and_not_quoted() {
        let (_folder, root) = host();
        let user = format!("client-certificate: {CURRENT}, client-key: {CURRENT}");
        write(&root, KUBECONFIG, &with_user(&user));
        write(&root, CURRENT, "s3cret");
        let refused = ask(&root).unwrap_err();
        assert_eq!(refused.code, Code::BadFile);
        assert!(refused.message.contains(CURRENT), "{refused}");
        assert!(!refused.message.contains("s3cret"), "{refused}");
    }
}
