//! What a single value must look like; each function says what was wanted and what to do instead.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    path::{Component, Path, PathBuf},
    time::Duration,
};

use http::Uri;

use super::settings::SocketPlace;
use crate::{
    desired::{Dialect, taints::Effect},
    health::ConditionType,
    kubelet::endpoint,
};

/// Longer, and a flapping kubelet would look broken for longer than anyone waits to replace the node.
const MAX_HEALTHY_FOR_SECS: i64 = 3600;
/// More events than one a second would be a burden.
const MAX_PER_HOUR: u32 = 3600;

/// A Node's name: an RFC 1123 subdomain, as the API server wants it.
pub fn node_name(text: &str) -> Result<String, String> {
    let part = |part: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        edge(part.chars().next())
            && edge(part.chars().next_back())
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if text.len() <= 253 && text.split('.').all(part) {
        return Ok(text.to_owned());
    }
    let lower = text.to_ascii_lowercase();
    let hint = if lower != text && node_name(&lower).is_ok() {
        format!("write it in lower case: {lower}")
    } else {
        "write it as kubectl get nodes shows it".to_owned()
    };
    Err(format!(
        "{text:?} is not a Node's name (an RFC 1123 subdomain: at most 253 of a-z, 0-9, '-' and '.', each part \
         starting and ending with a letter or digit); {hint}"
    ))
}

/// A path that means the same wherever the program was started.
pub fn absolute_path(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(format!(
            "{text:?} is not an absolute path; write it from / on"
        ));
    }
    if text.contains('\0') || path.components().any(|c| c == Component::ParentDir) {
        return Err(format!(
            "{text:?} is not a plain path; write it without .. and control characters"
        ));
    }
    Ok(path.to_owned())
}

/// The socket of an endpoint.
pub(super) fn runtime_endpoint(text: &str) -> Result<PathBuf, String> {
    let path = endpoint::socket_path(text).ok_or_else(|| {
        format!("{text:?} is no socket; wants unix:// and an absolute path, or the path alone")
    })?;
    absolute_path(&path)
}

/// The longest path of a Unix socket: `sun_path` less its end.
const MAX_SOCKET_BYTES: usize = 107;

/// `[metrics] socket`.
pub(super) fn socket_place(text: &str) -> Result<SocketPlace, String> {
    if text == "none" {
        return Ok(SocketPlace::Off);
    }
    if text.len() > MAX_SOCKET_BYTES {
        return Err(format!(
            "longer than the {MAX_SOCKET_BYTES} bytes of a Unix socket's path; choose a shorter one"
        ));
    }
    absolute_path(text).map(SocketPlace::At)
}

/// `[metrics] socket_mode`.
pub(super) fn socket_mode(text: &str) -> Result<u32, String> {
    match text {
        "0600" => Ok(0o600),
        "0660" => Ok(0o660),
        "0666" => Ok(0o666),
        _ => Err(format!(
            "{text:?} is none of \"0600\", \"0660\" and \"0666\"; to connect to a socket is to write to it"
        )),
    }
}

/// The name of a systemd service unit that can run: `NAME.service` or `NAME@INSTANCE.service`.
pub(super) fn service_unit_name(text: &str) -> Result<String, String> {
    let wanted = "a systemd service unit such as \"kubelet.service\"";
    let Some(stem) = text.strip_suffix(".service") else {
        return Err(format!("{text:?} is not {wanted}; add .service"));
    };
    if text.len() > 255 {
        return Err(format!(
            "longer than the 255 letters of a unit's name; wants {wanted}"
        ));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    if let Some(bad) = stem.chars().find(|c| !allowed(*c)) {
        return Err(format!(
            "{text:?} is not {wanted}: {bad:?} cannot stand in it; write it as systemctl shows it"
        ));
    }
    if stem.is_empty() || stem.starts_with('@') {
        return Err(format!("{text:?} is not {wanted}: it has no name"));
    }
    if stem.find('@').is_some_and(|at| at + 1 == stem.len()) {
        return Err(format!(
            "{text:?} is a template, which never runs; name the instance, as {stem}NAME.service"
        ));
    }
    Ok(text.to_owned())
}

/// An `http://` URL whose host is an IP address; `localhost` becomes `127.0.0.1`, no path becomes `/healthz`.
pub(super) fn healthz_url(text: &str) -> Result<String, String> {
    let wanted = "http://ADDRESS:PORT/healthz, such as http://127.0.0.1:10248/healthz";
    let uri: Uri = text
        .parse()
        .map_err(|error| format!("{text:?} is not a URL ({error}); wants {wanted}"))?;
    if uri.scheme_str() != Some("http") {
        return Err(format!(
            "{text:?} does not start with http:// (the kubelet serves its health without TLS); wants {wanted}"
        ));
    }
    let authority = uri
        .authority()
        .ok_or_else(|| format!("{text:?} names no host; wants {wanted}"))?;
    if authority.as_str().contains('@') {
        return Err(format!(
            "{text:?} holds a user name, which the kubelet never asks for; wants {wanted}"
        ));
    }
    let host = authority.host().trim_matches(['[', ']']);
    let address = if host.eq_ignore_ascii_case("localhost") {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    } else {
        host.parse().map_err(|_| {
            format!(
                "{host:?} is a name, and looking it up may block for as long as the resolver hangs; write its IP \
                 address, as {wanted}"
            )
        })?
    };
    let path = match uri.path_and_query().map_or("/", |path| path.as_str()) {
        "/" => "/healthz",
        path => path,
    };
    let host = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    // Not authority.port(), which takes a port that is no number for none.
    let Some(port) = authority.as_str()[authority.host().len()..].strip_prefix(':') else {
        return Ok(format!("http://{host}{path}"));
    };
    match port.parse::<u16>() {
        Ok(number) if number > 0 => Ok(format!("http://{host}:{number}{path}")),
        _ => Err(format!(
            "{port:?} is not a port from 1 to 65535; wants {wanted}"
        )),
    }
}

/// Seconds, at most an hour.
pub(super) fn up_to_an_hour(seconds: i64) -> Result<Duration, String> {
    u64::try_from(seconds)
        .ok()
        .filter(|_| seconds <= MAX_HEALTHY_FOR_SECS)
        .map(Duration::from_secs)
        .ok_or_else(|| {
            format!(
                "{seconds} is out of bounds; wants a whole number of seconds from 0 to {MAX_HEALTHY_FOR_SECS}"
            )
        })
}

/// `[kubernetes] publish`; `true`: nothing is written.
pub(super) fn is_shadow(text: &str) -> Result<bool, String> {
    match text {
        "all" => Ok(false),
        "none" => Ok(true),
        _ => Err(format!(
            "{text:?} is neither \"all\" nor \"none\"; to leave out a single condition write [conditions.TYPE] publish = false"
        )),
    }
}

/// Each word as one of `all`, in their order.
fn words<T: Copy>(
    written: &[String],
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<Vec<T>, String> {
    let known = || {
        all.iter()
            .map(|one| name(*one))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let is_known = |word: &&String| all.iter().any(|one| name(*one) == **word);
    if let Some(unknown) = written.iter().find(|word| !is_known(word)) {
        return Err(format!("{unknown:?} is none of {}", known()));
    }
    let is_there = |one: &T| written.iter().any(|word| *word == name(*one));
    Ok(all.iter().copied().filter(is_there).collect())
}

/// `[kubernetes] dialects`.
pub(super) fn dialects(written: &[String]) -> Result<Vec<Dialect>, String> {
    let dialects = words(written, Dialect::ALL, Dialect::as_str)?;
    if dialects.is_empty() {
        return Err(
            "names no dialect; to publish nothing write publish = \"none\" instead".to_owned(),
        );
    }
    Ok(dialects)
}

/// Conditions by their native names.
pub(super) fn conditions(written: &[String]) -> Result<Vec<ConditionType>, String> {
    words(written, ConditionType::ALL, ConditionType::as_str)
}

/// What our taints' keys begin with: by the last word we know them again.
pub(super) fn taint_prefix(text: &str) -> Result<String, String> {
    let domain = text.strip_suffix("/nodevigil-");
    // The longest slug fits into the 63 letters of a key's name; a domain is what the API asks of a taint that is not its own.
    match domain {
        Some(domain) if node_name(domain).is_ok() && domain.contains('.') => Ok(text.to_owned()),
        _ => Err(format!(
            "{text:?} is not a DNS name in lower case followed by /nodevigil-; write it as health.example.org/nodevigil-"
        )),
    }
}

/// A taint's effect.
pub(super) fn taint_effect(text: &str) -> Result<Effect, String> {
    let known = Effect::ALL.iter().find(|effect| effect.as_str() == text);
    known.copied().ok_or_else(|| {
        format!(
            "{text:?} is not the effect of a taint; wants NoSchedule, PreferNoSchedule or NoExecute"
        )
    })
}

/// A number of requests an hour.
pub(super) fn per_hour(number: i64) -> Result<u32, String> {
    u32::try_from(number)
        .ok()
        .filter(|number| *number <= MAX_PER_HOUR)
        .ok_or_else(|| {
            format!("{number} is out of bounds; wants a whole number from 0 to {MAX_PER_HOUR}")
        })
}

/// What `--cloud-provider` should be.
pub fn cloud_provider(text: &str) -> Result<String, String> {
    match text {
        "external" | "none" => Ok(text.to_owned()),
        _ => Err(format!(
            "{text:?} is nothing that a kubelet can be asked for since Kubernetes 1.31; wants \"external\" (a cloud \
             controller initialises the node) or \"none\""
        )),
    }
}

/// What `--node-ip` should be: an address, or one of each family.
pub fn node_ip(text: &str) -> Result<String, String> {
    let addresses: Option<Vec<IpAddr>> = text.split(',').map(|part| part.parse().ok()).collect();
    match addresses.as_deref() {
        Some([_]) => Ok(text.to_owned()),
        Some([one, other]) if one.is_ipv4() != other.is_ipv4() => Ok(text.to_owned()),
        _ => Err(format!(
            "{text:?} is not an IP address, nor one of each family with a comma between; write it as 10.0.0.7"
        )),
    }
}

/// What `spec.providerID` should be.
pub fn provider_id(text: &str) -> Result<String, String> {
    let parts = text.split_once("://");
    match parts {
        Some((provider, id)) if !provider.is_empty() && !id.is_empty() => Ok(text.to_owned()),
        _ => Err(format!(
            "{text:?} is not a provider ID; write it as kubectl get node -o jsonpath={{.spec.providerID}} shows it: \
             hcloud://12345678"
        )),
    }
}

/// Labels: `KEY=VALUE,…`.
pub fn node_labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    text.split(',')
        .map(|label| match label.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(format!(
                "{label:?} is not a label; write it as KEY=VALUE, more of them with a comma between"
            )),
        })
        .collect()
}
