//! Dates and name of a certificate in PEM, and nothing else of the file, which may hold the key as well.

use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;

use super::Certificate;
use super::credentials::decode;
use crate::kubelet::location::Location;

const MAX_CERTIFICATES: usize = 32;

/// The certificate that a PEM text shows to its peer: the last one that is no authority's, for a file to which renewed
/// certificates were appended; the last one if all are.
///
/// # Errors
/// What is wrong with the text, in words that quote nothing of it.
pub(super) fn of_pem(at: &Location, text: &[u8]) -> Result<Certificate, &'static str> {
    let mut chosen = None;
    let blocks = Pem::iter_from_buffer(text).flatten().filter(|block| block.label == "CERTIFICATE");
    for block in blocks.take(MAX_CERTIFICATES) {
        let Ok(read) = block.parse_x509() else { continue };
        let is_authority = read.is_ca();
        if !is_authority || chosen.as_ref().is_none_or(|(_, is_authority)| *is_authority) {
            chosen = Some((certificate(at, &read), is_authority));
        }
    }
    chosen.map(|(certificate, _)| certificate).ok_or("has no certificate that can be read")
}

/// The same of the base64 text that a kubeconfig carries.
pub(super) fn of_data(at: &Location, data: &str) -> Result<Certificate, &'static str> {
    of_pem(at, &decode(data).ok_or("has certificate data that is not base64")?)
}

fn certificate(at: &Location, read: &X509Certificate<'_>) -> Certificate {
    let name = read.subject().iter_common_name().next();
    Certificate {
        at: at.clone(),
        common_name: name.and_then(|name| name.as_str().ok()).map(str::to_owned),
        not_before_secs: read.validity().not_before.timestamp(),
        not_after_secs: read.validity().not_after.timestamp(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use base64::Engine;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// A certificate for `name`, valid from the 1st of January of one year to that of another, as PEM.
    pub(crate) fn pem(name: &str, from: i32, to: i32, is_authority: bool) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem()
    }

    fn name(text: &str) -> Result<String, &'static str> {
        of_pem(&Location::file("/c"), text.as_bytes()).map(|found| found.common_name.unwrap())
    }

    #[test]
    fn the_last_certificate_that_is_no_authority_counts() {
        let old = pem("system:node:old", 2020, 2021, false);
        let new = pem("system:node:a", 2025, 2026, false);
        let authority = pem("kubernetes", 2020, 2040, true);
        assert_eq!(name(&format!("{old}{new}{authority}")).unwrap(), "system:node:a");
        assert_eq!(name(&format!("{authority}{old}")).unwrap(), "system:node:old");
        assert_eq!(name(&authority).unwrap(), "kubernetes");
        let found = of_pem(&Location::file("/c"), new.as_bytes()).unwrap();
        assert_eq!(found.not_before_secs, 1_735_689_600);
        assert_eq!(found.not_after_secs, 1_767_225_600);
        let data = base64::prelude::BASE64_STANDARD.encode(&new);
        assert_eq!(of_data(&Location::file("/c"), &data).unwrap(), found);
    }

    #[test]
    fn what_is_no_certificate_says_so_and_quotes_nothing() {
        for text in [
            "",
            "-----BEGIN EC PRIVATE KEY-----\ns3cret\n-----END EC PRIVATE KEY-----\n",
            "-----BEGIN CERTIFICATE-----\ns3cret",
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----",
            "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----",
        ] {
            assert_eq!(name(text).unwrap_err(), "has no certificate that can be read");
        }
        assert!(of_data(&Location::file("/c"), "s3cret!").is_err());
    }
}
