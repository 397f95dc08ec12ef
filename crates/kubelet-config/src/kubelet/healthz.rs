//! Where the kubelet answers `/healthz`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::effective::{From, Settings};

/// The kubelet's default port for `/healthz`.
pub const DEFAULT_PORT: u16 = 10248;

/// Where the kubelet answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Healthz {
    /// The whole URL, `http://127.0.0.1:10248/healthz`; its host is an address, because a name would take a resolver.
    Url(String),
    /// `healthzPort: 0`: the kubelet serves none.
    Disabled,
}

/// Where a kubelet with these settings answers.
///
/// # Errors
/// With the place of a setting that gives no address.
pub fn healthz(settings: &Settings) -> Result<Healthz, String> {
    let Some(port) =
        settings.get("healthzPort").map_or(Some(DEFAULT_PORT), |port| port.value.as_i64()?.try_into().ok())
    else {
        return Err(wanted(settings, "healthzPort", "a number from 1 to 65535, or 0 to turn it off"));
    };
    let text = settings.text("healthzBindAddress").unwrap_or("127.0.0.1").trim();
    let address = match text.parse() {
        _ if text.eq_ignore_ascii_case("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
        // Nobody connects to an unspecified address.
        Ok(IpAddr::V4(address)) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Ok(IpAddr::V6(address)) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        Ok(address) => address,
        Err(_) => return Err(wanted(settings, "healthzBindAddress", "an IP address")),
    };
    Ok(match port {
        0 => Healthz::Disabled,
        // SocketAddr puts IPv6 in brackets.
        port => Healthz::Url(format!("http://{}/healthz", SocketAddr::new(address, port))),
    })
}

fn wanted(settings: &Settings, path: &str, form: &str) -> String {
    let setting = settings.get(path);
    let at = match setting.map(|setting| &setting.from) {
        Some(From::Flag(at) | From::File(at)) => at.to_string(),
        _ => "its default".to_owned(),
    };
    let value = setting.map_or_else(String::new, |setting| setting.value.to_string());
    // So short that no file makes an error long.
    format!("{path} in {at}: wanted {form}, got {value:.64}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::flags::parse::parse_argv;
    use crate::kubelet::location::Location;
    use crate::kubelet::tree::MemoryTree;
    use crate::kubelet::{config, effective, endpoint};

    const FILE: &str = "/var/lib/kubelet/config.yaml";

    fn settings(argv: &[&str], text: &str) -> Settings {
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let tree = MemoryTree::new().file(FILE, format!("{head}{text}"));
        let flags = parse_argv(&[&["kubelet", "--config", FILE], argv].concat(), &Location::file("/proc/7/cmdline"));
        effective::effective_settings(&flags, &config::load_config(&tree, &flags, None), None)
    }

    fn url(host_and_port: &str) -> Healthz {
        Healthz::Url(format!("http://{host_and_port}/healthz"))
    }

    #[test]
    fn a_flag_counts_more_than_the_file_and_the_file_more_than_the_default() {
        let of = |argv: &[&str], text: &str| healthz(&settings(argv, text)).unwrap();
        assert_eq!(healthz(&Settings::default()).unwrap(), url("127.0.0.1:10248"));
        assert_eq!(of(&[], ""), url("127.0.0.1:10248"));
        assert_eq!(of(&[], "healthzPort: null\nhealthzBindAddress: \"\"\n"), url("127.0.0.1:10248"));
        let file = "healthzPort: 1\nhealthzBindAddress: 10.0.0.1\n";
        assert_eq!(of(&[], file), url("10.0.0.1:1"));
        assert_eq!(of(&["--healthz-port=3", "--healthz_bind_address", "::1"], file), url("[::1]:3"));
        assert_eq!(of(&[], "healthzPort: 0"), Healthz::Disabled);
        assert_eq!(of(&["--healthz-port=0"], file), Healthz::Disabled);
    }

    #[test]
    fn what_is_listened_on_becomes_what_can_be_connected_to() {
        for (written, host) in [("0.0.0.0", "127.0.0.1"), ("'::'", "[::1]"), ("localhost", "127.0.0.1")] {
            let settings = settings(&[], &format!("healthzBindAddress: {written}\n"));
            assert_eq!(healthz(&settings).unwrap(), url(&format!("{host}:10248")));
        }
    }

    #[test]
    fn a_bad_setting_is_an_error_that_names_its_place() {
        let long = format!("healthzBindAddress: {}", "x".repeat(1000));
        for bad in ["healthzPort: many", "healthzPort: -1", "healthzPort: 70000", "healthzPort: [1]", &long] {
            let error = healthz(&settings(&[], bad)).unwrap_err();
            assert!(error.contains(&format!("{FILE}:3")) && error.len() < 200, "{bad:?}: {error}");
        }
    }

    #[test]
    fn the_runtimes_socket_comes_from_the_same_settings() {
        let of = |argv: &[&str], text: &str| endpoint::runtime_socket(&settings(argv, text));
        let file = "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n";
        assert_eq!(of(&[], ""), Some("/run/containerd/containerd.sock".into()));
        assert_eq!(of(&[], file), Some("/run/crio/crio.sock".into()));
        assert_eq!(of(&["--container-runtime-endpoint=/run/f.sock"], file), Some("/run/f.sock".into()));
        assert_eq!(of(&["--container-runtime-endpoint=tcp://1.2.3.4:5"], file), None);
    }
}
