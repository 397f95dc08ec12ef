//! Makes the cluster's certificates and the kubeconfigs that carry them.

use std::time::Duration;

use anyhow::{Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde_json::{Value, json};

/// A certificate and its key, as PEM.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The certificate.
    pub(crate) certificate: String,
    /// The private key (PKCS#8).
    pub(crate) key: String,
}

/// The cluster's certificate authority.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate and key: the controller manager signs with them.
    pub(crate) pair: Pair,
}

impl Authority {
    /// A new authority.
    pub(crate) fn new() -> Result<Self> {
        let mut params = params("kubernetes", &[], &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let pair = Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        };
        Ok(Self {
            issuer: Issuer::new(params, key),
            pair,
        })
    }

    /// A certificate for a user (name and groups) or a server (its names).
    pub(crate) fn sign(&self, name: &str, groups: &[&str], hosts: &[&str]) -> Result<Pair> {
        self.sign_params(params(name, groups, hosts)?, hosts.is_empty())
    }

    /// A server's certificate whose time was over a year ago.
    pub(crate) fn sign_expired(&self, name: &str, hosts: &[&str]) -> Result<Pair> {
        let mut params = params(name, &[], hosts)?;
        let year = this_year();
        params.not_before = date_time_ymd(year - 3, 1, 1);
        params.not_after = date_time_ymd(year - 2, 12, 31);
        self.sign_params(params, false)
    }

    /// A user's certificate that is good between two moments, in seconds since 1970.
    pub(crate) fn sign_between(
        &self,
        name: &str,
        groups: &[&str],
        (from, to): (u64, u64),
    ) -> Result<Pair> {
        let mut params = params(name, groups, &[])?;
        let epoch = date_time_ymd(1970, 1, 1);
        params.not_before = epoch + Duration::from_secs(from);
        params.not_after = epoch + Duration::from_secs(to);
        self.sign_params(params, true)
    }

    fn sign_params(&self, mut params: CertificateParams, for_client: bool) -> Result<Pair> {
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        let usage = if for_client {
            ExtendedKeyUsagePurpose::ClientAuth
        } else {
            ExtendedKeyUsagePurpose::ServerAuth
        };
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// A kubeconfig for a user, with everything inlined.
    pub(crate) fn kubeconfig(&self, user: &str, groups: &[&str], server: &str) -> Result<Value> {
        Ok(self.kubeconfig_with(user, &self.sign(user, groups, &[])?, server))
    }

    /// The same with a certificate that was signed before.
    pub(crate) fn kubeconfig_with(&self, user: &str, pair: &Pair, server: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
            "clusters": [{"name": "lab", "cluster": {
                "server": server,
                "certificate-authority-data": STANDARD.encode(&self.pair.certificate),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": STANDARD.encode(&pair.certificate),
                "client-key-data": STANDARD.encode(&pair.key),
            }}],
        })
    }
}

/// A request for a user's certificate, and its key; both as PEM.
pub(crate) fn request(user: &str, groups: &[&str]) -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    let request = params(user, groups, &[])?.serialize_request(&key)?;
    Ok((request.pem()?, key.serialize_pem()))
}

/// The key pair that service account tokens are signed with: (private, public).
pub(crate) fn service_account_keys() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn params(name: &str, groups: &[&str], hosts: &[&str]) -> Result<CertificateParams> {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts)?;
    let year = this_year();
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + 1, 12, 31);
    params.distinguished_name.remove(DnType::CommonName);
    // rcgen keeps one entry of each type; the same type spelt as an identifier is a second one.
    let organization = || DnType::CustomDnType(vec![2, 5, 4, 10]);
    match groups {
        [] => {}
        [one] => params
            .distinguished_name
            .push(DnType::OrganizationName, *one),
        [one, two] => {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *one);
            params.distinguished_name.push(organization(), *two);
        }
        _ => bail!("a user of the lab has two groups at most"),
    }
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn this_year() -> i32 {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    i32::from(now.year())
}
