//! Where the kubelet answers `/healthz`: from its flags and its configuration, with its own defaults.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{args::KubeletFlags, location::Location, yaml};

/// The kubelet's default port for `/healthz`.
pub const DEFAULT_PORT: u16 = 10248;

/// Where the kubelet answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Healthz {
    /// The whole URL, for example `http://127.0.0.1:10248/healthz`; its host is always an address, because looking
    /// up a name would take a resolver.
    Url(String),
    /// `healthzPort: 0`: the kubelet serves none.
    Disabled,
}

/// A text of `KubeletConfiguration`, YAML or JSON.
#[derive(Debug, Clone, Copy)]
pub struct ConfigText<'a> {
    /// Where it lies, for errors.
    pub path: &'a Path,
    /// The text.
    pub text: &'a str,
}

/// The two fields that we need; all others belong to the kubelet.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    healthz_port: Option<i64>,
    healthz_bind_address: Option<String>,
}

/// A setting and the place that it came from.
struct Setting {
    value: String,
    source_name: String,
}

/// Finds the address. A flag beats every file, a later file beats an earlier one (drop-ins come after the file that
/// `--config` names), and the kubelet's defaults are `127.0.0.1` and [`DEFAULT_PORT`].
///
/// # Errors
/// With the file or flag that gives no address.
pub fn healthz(flags: &KubeletFlags, configs: &[ConfigText<'_>]) -> Result<Healthz, String> {
    let mut port = None;
    let mut address = None;
    for config in configs {
        let path = config.path.display();
        let fields: Option<Fields> = yaml::read(config.text).map_err(|Location { line, column, .. }| {
            let at = format!("line {line}, column {column}");
            format!("read {path} as a KubeletConfiguration: not possible at {at}; correct the file there")
        })?;
        let fields = fields.unwrap_or_default();
        let setting = |value| Setting { value, source_name: path.to_string() };
        port = fields.healthz_port.map(|p| setting(p.to_string())).or(port);
        address = fields.healthz_bind_address.filter(|value| !value.is_empty()).map(setting).or(address);
    }
    let flag = |value: &Option<String>, name: &str| {
        value.clone().map(|value| Setting { value, source_name: format!("--{name}") })
    };
    port = flag(&flags.healthz_port, "healthz-port").or(port);
    address = flag(&flags.healthz_bind_address, "healthz-bind-address").or(address);

    let port = port.map_or(Ok(DEFAULT_PORT), parse_port)?;
    let address = address.map_or(Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)), parse_address)?;
    Ok(match port {
        0 => Healthz::Disabled,
        // SocketAddr puts IPv6 in brackets.
        port => Healthz::Url(format!("http://{}/healthz", SocketAddr::new(address, port))),
    })
}

fn parse_port(Setting { value, source_name }: Setting) -> Result<u16, String> {
    let wanted = "wanted a number from 1 to 65535, or 0 to turn it off";
    value.trim().parse().map_err(|_| format!("healthz port in {source_name}: {wanted}, got `{value:.64}`"))
}

/// The address to connect to: an unspecified one is listened on, but not connected to.
fn parse_address(Setting { value, source_name }: Setting) -> Result<IpAddr, String> {
    let text = value.trim();
    if text.eq_ignore_ascii_case("localhost") {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    match text.parse() {
        Ok(IpAddr::V4(address)) if address.is_unspecified() => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        Ok(IpAddr::V6(address)) if address.is_unspecified() => Ok(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        Ok(address) => Ok(address),
        // At most 64 characters, so that no file makes an error long.
        Err(_) => Err(format!("healthz address in {source_name}: wanted an IP address, got `{value:.64}`")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with(argv: &[&str], texts: &[&str]) -> Result<Healthz, String> {
        let configs: Vec<_> =
            texts.iter().map(|text| ConfigText { path: Path::new("/var/lib/kubelet/config.yaml"), text }).collect();
        healthz(&KubeletFlags::from_argv(argv), &configs)
    }

    fn url(host_and_port: &str) -> Healthz {
        Healthz::Url(format!("http://{host_and_port}/healthz"))
    }

    #[test]
    fn the_kubelets_defaults_hold_without_any_setting() {
        for texts in [&[][..], &[""], &["---\n"], &["kind: KubeletConfiguration\n"]] {
            assert_eq!(with(&["kubelet"], texts).unwrap(), url("127.0.0.1:10248"));
        }
        let null = "healthzPort: null\nhealthzBindAddress: \"\"\n";
        assert_eq!(with(&["kubelet"], &[null]).unwrap(), url("127.0.0.1:10248"));
    }

    #[test]
    fn a_flag_beats_a_file_and_a_later_file_an_earlier_one() {
        let file = "healthzPort: 1\nhealthzBindAddress: 10.0.0.1\n";
        let json = r#"{"kind": "KubeletConfiguration", "healthzPort": 2}"#;
        assert_eq!(with(&["kubelet"], &[file]).unwrap(), url("10.0.0.1:1"));
        assert_eq!(with(&["kubelet"], &[file, json]).unwrap(), url("10.0.0.1:2"));
        let flags = ["kubelet", "--healthz-port=3", "--healthz_bind_address", "::1"];
        assert_eq!(with(&flags, &[file, json]).unwrap(), url("[::1]:3"));
    }

    #[test]
    fn port_0_turns_it_off() {
        assert_eq!(with(&["kubelet"], &["healthzPort: 0"]).unwrap(), Healthz::Disabled);
        let flags = ["kubelet", "--healthz-port=0"];
        assert_eq!(with(&flags, &["healthzPort: 5"]).unwrap(), Healthz::Disabled);
    }

    #[test]
    fn what_is_listened_on_becomes_what_can_be_connected_to() {
        for (written, host) in [
            ("0.0.0.0", "127.0.0.1"),
            ("'::'", "[::1]"),
            ("localhost", "127.0.0.1"),
            ("fd00::7", "[fd00::7]"),
            ("192.168.1.7", "192.168.1.7"),
        ] {
            let text = format!("healthzBindAddress: {written}\n");
            assert_eq!(with(&["kubelet"], &[&text]).unwrap(), url(&format!("{host}:10248")));
        }
    }

    #[test]
    fn a_bad_setting_is_an_error_that_names_its_place() {
        let said = |argv: &[&str], text: &str| with(argv, &[text]).unwrap_err();
        let file = "/var/lib/kubelet/config.yaml";
        for bad in [
            "a: [",
            "healthzPort: many\n",
            "healthzPort: -1\n",
            "healthzPort: 70000\n",
            "healthzPort: [1]\n",
            "healthzBindAddress: node-1.example\n",
            "healthzBindAddress: {a: b}\n",
            "- a\n- b\n",
            "just words\n",
            "\t\u{0}",
        ] {
            let error = said(&["kubelet"], bad);
            assert!(error.contains(file), "{bad:?}: {error}");
        }
        assert!(said(&["kubelet", "--healthz-port=x"], "").contains("--healthz-port"));
        let long = format!("--healthz-bind-address={}", "x".repeat(1000));
        assert!(said(&["kubelet", &long], "").len() < 200);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(healthzPort|healthzBindAddress|[a-z:\\[\\]{}&*!|>'\" \n0-9-]){0,200}") {
            let _ = with(&["kubelet"], &[&text]);
        }
    }
}
