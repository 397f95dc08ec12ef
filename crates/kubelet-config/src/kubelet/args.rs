//! The few flags of a running kubelet that the daemon needs, from its command line.

use super::{flags::parse::parse_argv, location::Location};

/// The flags that nodevigil needs; `None` where the flag is absent or empty, which the kubelet treats alike.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubeletFlags {
    /// `--config`: the `KubeletConfiguration` file.
    pub config: Option<String>,
    /// `--config-dir`: the folder of drop-ins merged over it, by name.
    pub config_dir: Option<String>,
    /// `--kubeconfig`: what the kubelet speaks to the API server with.
    pub kubeconfig: Option<String>,
    /// `--healthz-port`.
    pub healthz_port: Option<String>,
    /// `--healthz-bind-address`.
    pub healthz_bind_address: Option<String>,
    /// `--hostname-override`: the Node's name, as it was written.
    pub hostname_override: Option<String>,
    /// `--root-dir`.
    pub root_dir: Option<String>,
    /// `--cert-dir`: where it keeps the certificates that it gets.
    pub cert_dir: Option<String>,
    /// `--container-runtime-endpoint`.
    pub container_runtime_endpoint: Option<String>,
}

/// The words of a `/proc/PID/cmdline`, each ended by NUL, the program's name first. Bytes that are not UTF-8 show as
/// `U+FFFD`.
pub fn words(cmdline: &[u8]) -> Vec<String> {
    let mut words: Vec<String> =
        cmdline.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    // What follows the last NUL is no word.
    if words.last().is_some_and(String::is_empty) {
        words.pop();
    }
    words
}

impl KubeletFlags {
    /// Reads `/proc/PID/cmdline`: words that end with NUL, the program's name first. Never fails: what the kubelet
    /// would refuse is passed over, because a kubelet that runs was not given it.
    pub fn from_cmdline(cmdline: &[u8]) -> Self {
        Self::from_argv(&words(cmdline))
    }

    /// Reads an argument list, the program's name first, by pflag's rules ([`super::flags::parse`]).
    pub fn from_argv<S: AsRef<str>>(argv: &[S]) -> Self {
        let line = parse_argv(argv, &Location::file(""));
        let value = |name| line.value(name).filter(|value| !value.is_empty()).map(str::to_owned);
        Self {
            config: value("config"),
            config_dir: value("config-dir"),
            kubeconfig: value("kubeconfig"),
            healthz_port: value("healthz-port"),
            healthz_bind_address: value("healthz-bind-address"),
            hostname_override: value("hostname-override"),
            root_dir: value("root-dir"),
            cert_dir: value("cert-dir"),
            container_runtime_endpoint: value("container-runtime-endpoint"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flags(words: &[&str]) -> KubeletFlags {
        KubeletFlags::from_argv(words)
    }

    #[test]
    fn both_forms_are_read_and_the_last_one_wins() {
        let read = flags(&[
            "/usr/bin/kubelet",
            "--config=/a",
            "--kubeconfig",
            "/etc/kubernetes/kubelet.conf",
            "--cert_dir=/b",
            "--config",
            "/var/lib/kubelet/config.yaml",
            "--node-labels",
            "a=b",
            "-v",
            "2",
            "--fail-swap-on",
            "--hostname_override=n1",
            "--root-dir=/r",
            "--config-dir=/d",
        ]);
        assert_eq!(read.config.as_deref(), Some("/var/lib/kubelet/config.yaml"));
        assert_eq!(read.kubeconfig.as_deref(), Some("/etc/kubernetes/kubelet.conf"));
        assert_eq!(read.cert_dir.as_deref(), Some("/b"));
        assert_eq!(read.hostname_override.as_deref(), Some("n1"));
        assert_eq!(read.root_dir.as_deref(), Some("/r"));
        assert_eq!(read.config_dir.as_deref(), Some("/d"));
    }

    #[test]
    fn two_dashes_end_the_flags() {
        let read = flags(&["kubelet", "--healthz-port=1", "--", "--healthz-port=2"]);
        assert_eq!(read.healthz_port.as_deref(), Some("1"));
    }

    #[test]
    fn an_empty_value_takes_back_an_earlier_one() {
        assert_eq!(flags(&["kubelet", "--config=/a", "--config="]).config, None);
        assert_eq!(flags(&["kubelet", "--config=/a", "--config", ""]).config, None);
    }

    #[test]
    fn values_keep_their_equals_signs_and_underscores() {
        let read = flags(&["kubelet", "--root_dir=/a_b=c"]);
        assert_eq!(read.root_dir.as_deref(), Some("/a_b=c"));
    }

    #[test]
    fn the_programs_own_name_is_no_flag() {
        assert_eq!(flags(&["--config=/a"]), KubeletFlags::default());
        assert_eq!(flags(&[]), KubeletFlags::default());
        assert_eq!(flags(&["kubelet", "--config"]), KubeletFlags::default());
    }

    #[test]
    fn a_cmdline_is_split_at_nul_and_empty_words_count() {
        let read = KubeletFlags::from_cmdline(b"kubelet\0--config\0\0--root-dir=/r\xff\0");
        assert_eq!(read.config, None);
        assert_eq!(read.root_dir.as_deref(), Some("/r\u{fffd}"));
        assert_eq!(KubeletFlags::from_cmdline(b""), KubeletFlags::default());
        // systemd's and setproctitle's cut ends: no final NUL.
        let cut = KubeletFlags::from_cmdline(b"kubelet\0--config=/a");
        assert_eq!(cut.config.as_deref(), Some("/a"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = KubeletFlags::from_cmdline(&bytes);
        }
    }
}
