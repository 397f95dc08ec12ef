//! Whose a credential is and when it ends, by what a client certificate or a service account's token says of itself. The API server verifies it.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde_json::Value;
use x509_parser::pem::Pem;

/// The users that have the name of their Node in their own: a kubelet, and an agent (packaging/kubernetes/policy.yaml).
const USERS_OF_NODES: [&str; 2] = ["system:node:", "nodevigil:"];

/// What a credential says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// The Node that it belongs to.
    pub node: Option<String>,
    /// It is valid through this second.
    pub until: Option<Timestamp>,
}

impl Subject {
    /// That of a PEM text's first certificate, which is the one that a client shows.
    pub fn of_certificate(pem: &[u8]) -> Option<Self> {
        let block = Pem::iter_from_buffer(pem).flatten().find(|block| block.label == "CERTIFICATE")?;
        let read = block.parse_x509().ok()?;
        let name = read.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        let until = Timestamp::from_second(read.validity().not_after.timestamp()).ok();
        Some(Self { node: name.and_then(node_of), until })
    }

    /// The same of the base64 text that a kubeconfig has.
    pub fn of_certificate_data(data: &str) -> Option<Self> {
        let data: String = data.split_whitespace().collect();
        Self::of_certificate(&BASE64_STANDARD.decode(data).ok()?)
    }

    /// The subject of a signed token: the Node to which the token is bound, or on which its pod runs, else the one in its user's name. An opaque
    /// token has none.
    pub fn of_token(token: &str) -> Option<Self> {
        let payload = token.trim().split('.').nth(1)?;
        let claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
        let bound = claims["kubernetes.io"]["node"]["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
        let until = claims["exp"].as_i64().and_then(|secs| Timestamp::from_second(secs).ok());
        Some(Self { node: bound.or_else(|| node_of(claims["sub"].as_str()?)), until })
    }
}

/// The Node that a user belongs to.
pub fn node_of(user: &str) -> Option<String> {
    let name = USERS_OF_NODES.iter().find_map(|prefix| user.strip_prefix(prefix));
    name.filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    use super::*;

    fn token(claims: &Value) -> String {
        format!("e30.{}.c2ln\n", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn a_certificate_names_the_node_and_its_own_end() {
        let of = |user: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, user);
            params.not_after = date_time_ymd(2027, 1, 1);
            let key = KeyPair::generate().unwrap();
            let pem = format!("{}{}", key.serialize_pem(), params.self_signed(&key).unwrap().pem());
            let found = Subject::of_certificate(pem.as_bytes()).unwrap();
            assert_eq!(Subject::of_certificate_data(&BASE64_STANDARD.encode(&pem)), Some(found.clone()));
            assert_eq!(found.until, Some("2027-01-01T00:00:00Z".parse().unwrap()));
            found.node
        };
        assert_eq!(of("system:node:worker-7.example"), Some("worker-7.example".into()));
        assert_eq!(of("nodevigil:worker-7"), Some("worker-7".into()));
        assert_eq!((of("system:admin"), of("nodevigil:")), (None, None));
        assert_eq!(Subject::of_certificate(b"no certificate"), None);
    }

    #[test]
    fn a_token_names_the_node_that_it_is_bound_to_or_that_its_user_is() {
        let node = |claims: Value| Subject::of_token(&token(&claims)).unwrap().node;
        let sub = "system:serviceaccount:kube-system:nodevigil";
        let bound =
            serde_json::json!({"namespace": "kube-system", "node": {"name": "n1", "uid": "u"}, "pod": {"name": "p"}});
        assert_eq!(node(serde_json::json!({"sub": sub, "kubernetes.io": bound})), Some("n1".into()));
        assert_eq!(node(serde_json::json!({"sub": sub, "kubernetes.io": {"pod": {"name": "p"}}})), None);
        assert_eq!(node(serde_json::json!({"sub": "system:node:n2"})), Some("n2".into()));
        let until = Subject::of_token(&token(&serde_json::json!({"exp": 1_800_000_000}))).unwrap().until;
        assert_eq!(until, Some("2027-01-15T08:00:00Z".parse().unwrap()));
        assert_eq!((Subject::of_token("abcdef.0123456789"), Subject::of_token("")), (None, None));
    }
}
