//! Every flag of the kubelets 1.24 to 1.37. Checked against real kubelets (`tests/kubelet`).

use super::{
    super::version::Minor,
    FlagSpec, Repeat,
    ValueKind::{
        self, Bool, Duration, Gates, Headers, Int, Int32, Ip, Labels, Map, OnePair, Quantity, ReservedMemory, String,
        Strings, Taints, Thresholds, Uint, VModule, Version,
    },
};

/// The flags, sorted by name.
///
/// Read from `cmd/kubelet/app/options` and `component-base` of Kubernetes 1.23.17, 1.24.17, 1.25.16, 1.26.15, 1.27.16,
/// 1.28.15, 1.29.6, 1.30.14, 1.31.14, 1.32.13, 1.33.13, 1.34.4, 1.35.4 and 1.36.3; what 1.37 changes from its change
/// log (kubernetes/kubernetes#139870). Fields are the JSON names of `kubelet.config.k8s.io/v1beta1` 1.36.3.
/// `--seccomp-default` and its field are joined by "or": neither takes the other back.
#[rustfmt::skip]
pub const FLAGS: &[FlagSpec] = &[
    flag("add-dir-header", Bool).removed(26, "nothing"),
    flag("address", Ip).field("address").deprecated(),
    flag("allowed-unsafe-sysctls", Strings).field("allowedUnsafeSysctls").deprecated(),
    flag("alsologtostderr", Bool).removed(26, "nothing: the kubelet logs to standard error"),
    flag("anonymous-auth", Bool).field("authentication.anonymous.enabled").deprecated(),
    flag("application-metrics-count-limit", Int).removed(37, "nothing: it was cAdvisor's"),
    flag("authentication-token-webhook", Bool).field("authentication.webhook.enabled").deprecated(),
    flag("authentication-token-webhook-cache-ttl", Duration).field("authentication.webhook.cacheTTL").deprecated(),
    flag("authorization-mode", String).field("authorization.mode").deprecated(),
    flag("authorization-webhook-cache-authorized-ttl", Duration).field("authorization.webhook.cacheAuthorizedTTL").deprecated(),
    flag("authorization-webhook-cache-unauthorized-ttl", Duration).field("authorization.webhook.cacheUnauthorizedTTL").deprecated(),
    flag("azure-container-registry-config", String).removed(30, "--image-credential-provider-config and --image-credential-provider-bin-dir"),
    flag("boot-id-file", String).removed(37, "nothing: it was cAdvisor's"),
    flag("bootstrap-kubeconfig", String),
    flag("cert-dir", String),
    flag("cgroup-driver", String).field("cgroupDriver").deprecated(),
    flag("cgroup-root", String).field("cgroupRoot").deprecated(),
    flag("cgroups-per-qos", Bool).field("cgroupsPerQOS").deprecated(),
    flag("client-ca-file", String).field("authentication.x509.clientCAFile").deprecated(),
    flag("cloud-config", String).removed(34, "the cloud controller manager's own configuration"),
    flag("cloud-provider", String),
    flag("cluster-dns", Strings).field("clusterDNS").deprecated(),
    flag("cluster-domain", String).field("clusterDomain").deprecated(),
    flag("cni-bin-dir", String).removed(24, "bin_dir in the configuration of containerd or CRI-O"),
    flag("cni-cache-dir", String).removed(24, "nothing: the runtime calls CNI itself"),
    flag("cni-conf-dir", String).removed(24, "conf_dir in the configuration of containerd or CRI-O"),
    flag("config", String),
    flag("config-dir", String).since(28),
    flag("container-hints", String).removed(37, "nothing: it was cAdvisor's"),
    flag("container-log-max-files", Int32).field("containerLogMaxFiles").deprecated(),
    flag("container-log-max-size", String).field("containerLogMaxSize").deprecated(),
    flag("container-runtime", String).removed(27, "nothing: remote was the only value left"),
    flag("container-runtime-endpoint", String).field("containerRuntimeEndpoint").deprecated(),
    flag("containerd", String).removed(37, "nothing: it was cAdvisor's"),
    flag("containerd-namespace", String).removed(37, "nothing: it was cAdvisor's"),
    flag("contention-profiling", Bool).field("enableContentionProfiling").deprecated(),
    flag("cpu-cfs-quota", Bool).field("cpuCFSQuota").deprecated(),
    flag("cpu-cfs-quota-period", Duration).field("cpuCFSQuotaPeriod").deprecated(),
    flag("cpu-manager-policy", String).field("cpuManagerPolicy").deprecated(),
    flag("cpu-manager-policy-options", OnePair).field("cpuManagerPolicyOptions").deprecated(),
    flag("cpu-manager-reconcile-period", Duration).field("cpuManagerReconcilePeriod").deprecated(),
    flag("docker", String).removed(24, "nothing: it was cAdvisor's, for Docker"),
    flag("docker-endpoint", String).removed(24, "containerRuntimeEndpoint, with containerd, CRI-O or cri-dockerd"),
    flag("docker-env-metadata-whitelist", String).removed(24, "nothing: it was cAdvisor's, for Docker"),
    flag("docker-only", Bool).removed(24, "nothing: it was cAdvisor's, for Docker"),
    flag("docker-root", String).removed(24, "nothing: it was cAdvisor's, for Docker"),
    flag("docker-tls", Bool).removed(24, "nothing: it was cAdvisor's, for Docker"),
    flag("docker-tls-ca", String).removed(24, "nothing: it was cAdvisor's, for Docker"),
    flag("docker-tls-cert", String).removed(24, "nothing: it was cAdvisor's, for Docker"),
    flag("docker-tls-key", String).removed(24, "nothing: it was cAdvisor's, for Docker"),
    flag("dynamic-config-dir", String).removed(24, "--config and --config-dir"),
    flag("enable-controller-attach-detach", Bool).field("enableControllerAttachDetach").deprecated(),
    flag("enable-debugging-handlers", Bool).field("enableDebuggingHandlers").deprecated(),
    flag("enable-load-reader", Bool).removed(37, "nothing: it was cAdvisor's"),
    flag("enable-server", Bool).field("enableServer").deprecated(),
    flag("enforce-node-allocatable", Strings).field("enforceNodeAllocatable").deprecated(),
    flag("event-burst", Int32).field("eventBurst").deprecated(),
    flag("event-qps", Int32).field("eventRecordQPS").deprecated(),
    flag("event-storage-age-limit", String).removed(37, "nothing: it was cAdvisor's"),
    flag("event-storage-event-limit", String).removed(37, "nothing: it was cAdvisor's"),
    flag("eviction-hard", Thresholds).field("evictionHard").deprecated(),
    flag("eviction-max-pod-grace-period", Int32).field("evictionMaxPodGracePeriod").deprecated(),
    flag("eviction-minimum-reclaim", Map).field("evictionMinimumReclaim").deprecated(),
    flag("eviction-pressure-transition-period", Duration).field("evictionPressureTransitionPeriod").deprecated(),
    flag("eviction-soft", Thresholds).field("evictionSoft").deprecated(),
    flag("eviction-soft-grace-period", Map).field("evictionSoftGracePeriod").deprecated(),
    flag("exit-on-lock-contention", Bool),
    flag("experimental-allocatable-ignore-eviction", Bool).deprecated(),
    flag("experimental-check-node-capabilities-before-mount", Bool).removed(24, "CSI"),
    flag("experimental-dockershim-root-directory", String).removed(24, "nothing: it was for dockershim"),
    flag("experimental-kernel-memcg-notification", Bool).removed(25, "kernelMemcgNotification in the configuration file"),
    flag("experimental-logging-sanitization", Bool).removed(24, "nothing"),
    flag("experimental-mounter-path", String).deprecated(),
    flag("fail-cgroupv1", Bool).field("failCgroupV1").since(31),
    flag("fail-swap-on", Bool).field("failSwapOn").deprecated(),
    flag("feature-gates", Gates).field("featureGates").deprecated(),
    flag("file-check-frequency", Duration).field("fileCheckFrequency").deprecated(),
    flag("global-housekeeping-interval", Duration).removed(37, "nothing: it was cAdvisor's"),
    flag("hairpin-mode", String).field("hairpinMode").deprecated(),
    flag("healthz-bind-address", Ip).field("healthzBindAddress").deprecated(),
    flag("healthz-port", Int32).field("healthzPort").deprecated(),
    flag("help", Bool).short('h'),
    flag("hostname-override", String),
    flag("housekeeping-interval", Duration),
    flag("http-check-frequency", Duration).field("httpCheckFrequency").deprecated(),
    flag("image-credential-provider-bin-dir", String),
    flag("image-credential-provider-config", String),
    flag("image-gc-high-threshold", Int32).field("imageGCHighThresholdPercent").deprecated(),
    flag("image-gc-low-threshold", Int32).field("imageGCLowThresholdPercent").deprecated(),
    flag("image-pull-progress-deadline", Duration).removed(24, "nothing: it was for dockershim"),
    flag("image-service-endpoint", String).field("imageServiceEndpoint").deprecated(),
    flag("iptables-drop-bit", Int32).field("iptablesDropBit").removed(31, "nothing: it had no effect since 1.28"),
    flag("iptables-masquerade-bit", Int32).field("iptablesMasqueradeBit").removed(31, "nothing: it had no effect since 1.28"),
    flag("keep-terminated-pod-volumes", Bool).removed(31, "nothing"),
    flag("kernel-memcg-notification", Bool).field("kernelMemcgNotification").deprecated(),
    flag("kube-api-burst", Int32).field("kubeAPIBurst").deprecated(),
    flag("kube-api-content-type", String).field("contentType").deprecated(),
    flag("kube-api-qps", Int32).field("kubeAPIQPS").deprecated(),
    flag("kube-reserved", Map).field("kubeReserved").deprecated(),
    flag("kube-reserved-cgroup", String).field("kubeReservedCgroup").deprecated(),
    flag("kubeconfig", String),
    flag("kubelet-cgroups", String).field("kubeletCgroups").deprecated(),
    flag("local-storage-capacity-isolation", Bool).field("localStorageCapacityIsolation").deprecated().since(25),
    flag("lock-file", String),
    flag("log-backtrace-at", String).removed(26, "nothing"),
    flag("log-cadvisor-usage", Bool).removed(37, "nothing: it was cAdvisor's"),
    flag("log-dir", String).removed(26, "the service's StandardOutput= and StandardError=, or kube-log-runner"),
    flag("log-file", String).removed(26, "the service's StandardOutput= and StandardError=, or kube-log-runner"),
    flag("log-file-max-size", Int).removed(26, "the service's StandardOutput= and StandardError=, or kube-log-runner"),
    flag("log-flush-frequency", Duration).field("logging.flushFrequency"),
    flag("log-json-info-buffer-size", Quantity).field("logging.options.json.infoBufferSize").deprecated(),
    flag("log-json-split-stream", Bool).field("logging.options.json.splitStream").deprecated(),
    flag("log-text-info-buffer-size", Quantity).field("logging.options.text.infoBufferSize").deprecated().since(30),
    flag("log-text-split-stream", Bool).field("logging.options.text.splitStream").deprecated().since(30),
    flag("logging-format", String).field("logging.format").deprecated(),
    flag("logtostderr", Bool).removed(26, "nothing: the kubelet logs to standard error"),
    flag("machine-id-file", String).removed(37, "nothing: it was cAdvisor's"),
    flag("make-iptables-util-chains", Bool).field("makeIPTablesUtilChains").deprecated(),
    flag("manifest-url", String).field("staticPodURL").deprecated(),
    flag("manifest-url-header", Headers).field("staticPodURLHeader").deprecated(),
    flag("master-service-namespace", String).removed(27, "nothing"),
    flag("max-open-files", Int).field("maxOpenFiles").deprecated(),
    flag("max-pods", Int32).field("maxPods").deprecated(),
    flag("maximum-dead-containers", Int32).deprecated(),
    flag("maximum-dead-containers-per-container", Int32).deprecated(),
    flag("memory-manager-policy", String).field("memoryManagerPolicy").deprecated(),
    flag("minimum-container-ttl-duration", Duration).deprecated(),
    flag("minimum-image-ttl-duration", Duration).field("imageMinimumGCAge").deprecated(),
    flag("network-plugin", String).removed(24, "nothing: the runtime calls CNI itself"),
    flag("network-plugin-mtu", Int32).removed(24, "the mtu of the CNI configuration"),
    flag("node-ip", String),
    flag("node-labels", Labels),
    flag("node-status-max-images", Int32).field("nodeStatusMaxImages").deprecated(),
    flag("node-status-update-frequency", Duration).field("nodeStatusUpdateFrequency").deprecated(),
    flag("non-masquerade-cidr", String).removed(24, "ip-masq-agent"),
    flag("one-output", Bool).removed(26, "nothing: the kubelet logs to standard error"),
    flag("oom-score-adj", Int32).field("oomScoreAdj").deprecated(),
    flag("pod-cidr", String).field("podCIDR").deprecated(),
    flag("pod-infra-container-image", String).removed(35, "the runtime's own setting: sandbox_image or pinned_images.sandbox of containerd, pause_image of CRI-O"),
    flag("pod-manifest-path", String).field("staticPodPath").deprecated(),
    flag("pod-max-pids", Int).field("podPidsLimit").deprecated(),
    flag("pods-per-core", Int32).field("podsPerCore").deprecated(),
    flag("port", Int32).field("port").deprecated(),
    flag("protect-kernel-defaults", Bool).field("protectKernelDefaults").deprecated(),
    flag("provider-id", String).field("providerID"),
    flag("qos-reserved", Map).field("qosReserved").deprecated(),
    flag("read-only-port", Int32).field("readOnlyPort").deprecated(),
    flag("really-crash-for-testing", Bool).removed(24, "nothing"),
    flag("register-node", Bool).field("registerNode").deprecated(),
    flag("register-schedulable", Bool).removed(34, "registerWithTaints with node.kubernetes.io/unschedulable:NoSchedule"),
    flag("register-with-taints", Taints).field("registerWithTaints").deprecated(),
    flag("registry-burst", Int32).field("registryBurst").deprecated(),
    flag("registry-qps", Int32).field("registryPullQPS").deprecated(),
    flag("reserved-cpus", String).field("reservedSystemCPUs").deprecated(),
    flag("reserved-memory", ReservedMemory).field("reservedMemory").deprecated(),
    flag("resolv-conf", String).field("resolvConf").deprecated(),
    flag("root-dir", String),
    flag("rotate-certificates", Bool).field("rotateCertificates").deprecated(),
    flag("rotate-server-certificates", Bool).field("serverTLSBootstrap").deprecated(),
    flag("runonce", Bool).field("runOnce").deprecated(),
    flag("runtime-cgroups", String),
    flag("runtime-request-timeout", Duration).field("runtimeRequestTimeout").deprecated(),
    flag("seccomp-default", Bool).field("seccompDefault"),
    flag("serialize-image-pulls", Bool).field("serializeImagePulls").deprecated(),
    flag("skip-headers", Bool).removed(26, "nothing"),
    flag("skip-log-headers", Bool).removed(26, "nothing"),
    flag("stderrthreshold", String).removed(26, "nothing: the kubelet logs to standard error"),
    flag("storage-driver-buffer-duration", Duration).removed(37, "nothing: it was cAdvisor's"),
    flag("storage-driver-db", String).removed(37, "nothing: it was cAdvisor's"),
    flag("storage-driver-host", String).removed(37, "nothing: it was cAdvisor's"),
    flag("storage-driver-password", String).removed(37, "nothing: it was cAdvisor's"),
    flag("storage-driver-secure", Bool).removed(37, "nothing: it was cAdvisor's"),
    flag("storage-driver-table", String).removed(37, "nothing: it was cAdvisor's"),
    flag("storage-driver-user", String).removed(37, "nothing: it was cAdvisor's"),
    flag("streaming-connection-idle-timeout", Duration).field("streamingConnectionIdleTimeout").deprecated(),
    flag("sync-frequency", Duration).field("syncFrequency").deprecated(),
    flag("system-cgroups", String).field("systemCgroups").deprecated(),
    flag("system-reserved", Map).field("systemReserved").deprecated(),
    flag("system-reserved-cgroup", String).field("systemReservedCgroup").deprecated(),
    flag("tls-cert-file", String).field("tlsCertFile").deprecated(),
    flag("tls-cipher-suites", Strings).field("tlsCipherSuites").deprecated(),
    flag("tls-curve-preferences", Strings).field("tlsCurvePreferences").deprecated().since(37),
    flag("tls-min-version", String).field("tlsMinVersion").deprecated(),
    flag("tls-private-key-file", String).field("tlsPrivateKeyFile").deprecated(),
    flag("topology-manager-policy", String).field("topologyManagerPolicy").deprecated(),
    flag("topology-manager-policy-options", Map).field("topologyManagerPolicyOptions").deprecated().since(26),
    flag("topology-manager-scope", String).field("topologyManagerScope").deprecated(),
    flag("v", Uint).short('v').field("logging.verbosity"),
    flag("version", Version),
    flag("vmodule", VModule).field("logging.vmodule"),
    flag("volume-plugin-dir", String).field("volumePluginDir").deprecated(),
    flag("volume-stats-agg-period", Duration).field("volumeStatsAggPeriod").deprecated(),
];

/// The flag of that name (with `-`).
pub fn find(name: &str) -> Option<&'static FlagSpec> {
    FLAGS.binary_search_by(|spec| spec.name.cmp(name)).ok().map(|index| &FLAGS[index])
}

/// The flag of that letter.
pub fn find_short(letter: char) -> Option<&'static FlagSpec> {
    FLAGS.iter().find(|spec| spec.shorthand == Some(letter))
}

const fn flag(name: &'static str, value: ValueKind) -> FlagSpec {
    FlagSpec {
        name,
        shorthand: None,
        value,
        repeat: match value {
            Map | OnePair | Labels | Thresholds | Gates => Repeat::Merge,
            Strings | Headers | ReservedMemory | VModule => Repeat::Append,
            _ => Repeat::LastWins,
        },
        field: None,
        deprecated: false,
        since: None,
        removed: None,
        instead: None,
    }
}

impl FlagSpec {
    const fn short(self, letter: char) -> Self {
        Self { shorthand: Some(letter), ..self }
    }

    const fn field(self, path: &'static str) -> Self {
        Self { field: Some(path), ..self }
    }

    const fn deprecated(self) -> Self {
        Self { deprecated: true, ..self }
    }

    const fn since(self, minor: u16) -> Self {
        Self { since: Some(Minor(minor)), ..self }
    }

    const fn removed(self, minor: u16, instead: &'static str) -> Self {
        Self { deprecated: true, removed: Some(Minor(minor)), instead: Some(instead), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_consistent() {
        assert!(FLAGS.windows(2).all(|pair| pair[0].name < pair[1].name));
        for spec in FLAGS {
            assert!(!spec.name.contains('_'), "{}", spec.name);
            assert_eq!(find(spec.name).map(|found| found.name), Some(spec.name));
            assert_eq!(spec.removed.is_some(), spec.instead.is_some(), "{}", spec.name);
            if let (Some(since), Some(removed)) = (spec.since, spec.removed) {
                assert!(since < removed, "{}", spec.name);
            }
        }
        assert!(find("cloud_provider").is_none());
        assert_eq!(find_short('v').map(|spec| spec.name), Some("v"));
        assert_eq!(find_short('h').map(|spec| spec.name), Some("help"));
        assert!(find_short('c').is_none());
    }

    #[test]
    fn releases_know_what_they_know() {
        let known = |name: &str, minor| find(name).unwrap().known_in(Minor(minor));
        assert!(known("pod-infra-container-image", 34) && !known("pod-infra-container-image", 35));
        assert!(!known("config-dir", 27) && known("config-dir", 28));
        assert!(known("containerd", 36) && !known("containerd", 37));
        assert!(known("node-ip", 24) && known("node-ip", 37));
    }

    #[test]
    fn repeats_follow_the_form_of_the_value() {
        let repeat = |name: &str| find(name).unwrap().repeat;
        assert_eq!(repeat("node-labels"), Repeat::Merge);
        assert_eq!(repeat("cluster-dns"), Repeat::Append);
        assert_eq!(repeat("register-with-taints"), Repeat::LastWins);
        assert_eq!(repeat("v"), Repeat::LastWins);
    }
}
