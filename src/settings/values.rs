//! Types whose values are checked while they are parsed, so that an error has the line of the value.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Uri;
use hyper::http::uri::Scheme;
use kubelet_config::kubelet::endpoint::socket_path;
use reqwest::Url;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::ReasonSettings;
use crate::condition::Reason;

/// What is quoted of a value that is refused.
pub(super) const MAX_QUOTED_BYTES: usize = 300;

/// A number of seconds from `MIN` to `MAX`; `DEFAULT` if it is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "i64")]
pub struct Secs<const MIN: u64, const MAX: u64, const DEFAULT: u64>(u64);

impl<const MIN: u64, const MAX: u64, const DEFAULT: u64> Secs<MIN, MAX, DEFAULT> {
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl<const MIN: u64, const MAX: u64, const DEFAULT: u64> Default for Secs<MIN, MAX, DEFAULT> {
    fn default() -> Self {
        const { assert!(MIN <= DEFAULT && DEFAULT <= MAX, "a default within its bounds") };
        Self(DEFAULT)
    }
}

impl<const MIN: u64, const MAX: u64, const DEFAULT: u64> TryFrom<i64> for Secs<MIN, MAX, DEFAULT> {
    type Error = String;

    fn try_from(secs: i64) -> Result<Self, String> {
        let in_range = u64::try_from(secs).ok().filter(|secs| (MIN..=MAX).contains(secs));
        in_range.map(Self).ok_or_else(|| format!("{secs} is out of range: expected {MIN} to {MAX} seconds"))
    }
}

/// An address to listen on.
pub fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    let wrong = |_| format!("{text:?} is not an address: expected IP:PORT, such as 127.0.0.1:20258 or [::1]:20258");
    text.parse().map_err(wrong).map_err(de::Error::custom)
}

/// A service. As for systemctl, `.service` may be left out.
pub fn service<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let unit = Option::<String>::deserialize(deserializer)?;
    Ok(unit.map(|unit| if unit.ends_with(".service") { unit } else { unit + ".service" }))
}

/// The path of a file.
pub fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(Option::<AbsolutePath>::deserialize(deserializer)?.map(|path| path.0))
}

/// Paths of directories.
pub fn paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    Ok(Vec::<AbsolutePath>::deserialize(deserializer)?.into_iter().map(|path| path.0).collect())
}

/// The name of a Node.
pub fn node_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<NodeName>::deserialize(deserializer)?.map(|name| name.0))
}

/// A value that is checked while it is parsed.
macro_rules! checked {
    ($name:ident($inner:ty as $text:literal) -> $borrowed:ty, $is_right:expr, $wanted:expr) => {
        /// See what is expected of it.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = $text)]
        pub struct $name($inner);

        impl TryFrom<$inner> for $name {
            type Error = String;

            fn try_from(value: $inner) -> Result<Self, String> {
                let is_right: fn(&$borrowed) -> bool = $is_right;
                if is_right(&value) {
                    Ok(Self(value))
                } else {
                    let value = match format!("{value:?}") {
                        // A URL with a password or a signature in it.
                        text if text.contains(['@', '?']) => "the value".to_owned(),
                        text => redact::sanitize_line(&text, $crate::settings::values::MAX_QUOTED_BYTES),
                    };
                    Err(format!("{value} is invalid: expected {}", $wanted))
                }
            }
        }

        impl std::ops::Deref for $name {
            type Target = $borrowed;

            fn deref(&self) -> &$borrowed {
                &self.0
            }
        }
    };
}
pub(super) use checked;

checked!(SocketUrl(String as "String") -> str,
    |text| socket_path(text).is_some(), "unix:///PATH, such as unix:///run/crio/crio.sock");
checked!(NodeIp(String as "String") -> str, is_node_ip,
    "an IP address, or an IPv4 and an IPv6 address separated by a comma, such as 10.0.0.7");
checked!(ProviderId(String as "String") -> str,
    |text| text.split_once("://").is_some_and(|(scheme, id)| !scheme.is_empty() && !id.is_empty()),
    "PROVIDER://ID, such as hcloud://12345678");
checked!(UploadUrl(String as "String") -> str, is_upload_url,
    "https://HOST/PATH with {record} in the path, such as https://records.example.com/{node}/{record}.json");
checked!(ProxyUrl(String as "String") -> str, is_proxy_url, "http://HOST:PORT, such as http://proxy.example.com:3128");
checked!(HealthzUrl(String as "String") -> str, is_healthz_url,
    "http://ADDRESS:PORT/PATH with an IP address or localhost, such as http://127.0.0.1:10248/healthz");
checked!(NodeName(String as "String") -> str,
    |text| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c)),
    "the name of a Node: lower-case letters, digits, `-` and `.`");
checked!(AbsolutePath(PathBuf as "PathBuf") -> Path, |path| path.is_absolute(), "a path that begins with /");

/// Whether the agent can probe it: it looks no name up.
fn is_healthz_url(text: &str) -> bool {
    let is_address = |host: &str| host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let is_right = |url: Uri| {
        url.scheme() == Some(&Scheme::HTTP) && url.host().is_some_and(is_address) && url.port_u16().is_some()
    };
    text.parse().is_ok_and(is_right)
}

fn is_upload_url(text: &str) -> bool {
    let url = Url::parse(&text.replace("{node}", "n").replace("{record}", "RECORD"));
    url.is_ok_and(|url| url.scheme() == "https" && url.path().contains("RECORD") && !url.path().contains("%7B"))
}

/// As reqwest takes it: without a scheme it is http.
fn is_proxy_url(text: &str) -> bool {
    let url = if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) };
    url.is_ok_and(|url| ["http", "https"].contains(&url.scheme()) && url.has_host())
}

/// As in the kubelet's --node-ip.
fn is_node_ip(text: &str) -> bool {
    let addresses: Result<Vec<IpAddr>, _> = text.split(',').map(str::parse).collect();
    match addresses.as_deref() {
        Ok([one, other]) => one.is_ipv4() != other.is_ipv4(),
        addresses => addresses.is_ok_and(|addresses| addresses.len() == 1),
    }
}

/// `[reasons]`. The reasons of healthy conditions cannot be downgraded, nor can those that every condition can have.
pub fn reasons<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Reason, ReasonSettings>, D::Error> {
    let reasons = BTreeMap::<Name, ReasonSettings>::deserialize(deserializer)?;
    Ok(reasons.into_iter().map(|(name, settings)| (name.0, settings)).collect())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct Name(Reason);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let Some(reason) = Reason::by_name(&name) else {
            return Err(format!("no reason is named {name}: expected a reason that `nodevigil explain` lists"));
        };
        match reason.spec().condition {
            Some(condition) if reason != Reason::healthy(condition) => Ok(Self(reason)),
            _ => Err(format!("{name} cannot be downgraded: expected the reason of a problem")),
        }
    }
}
