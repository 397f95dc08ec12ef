//! Every field of `kubelet.config.k8s.io/v1beta1` `KubeletConfiguration`, with the release that brought it and its default.

use std::{collections::HashMap, sync::OnceLock};

use super::super::version::{Minor, Version};

/// What a field takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true`, `false`.
    Bool,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A whole number from 0, of 32 bits.
    Uint32,
    /// A number.
    Float,
    /// Text.
    String,
    /// Go's duration, as text: `1m30s`.
    Duration,
    /// A duration, as text or as a number of nanoseconds (`logging.flushFrequency` alone).
    Flexible,
    /// A quantity, as text or as a number: `100Mi`.
    Quantity,
    /// A structure, its fields each with an entry of its own.
    Object,
    /// A list; of structures the fields stand under `name[].field`.
    List(&'static Kind),
    /// A map with keys of the user's.
    Map(&'static Kind),
}

/// What counts where a file says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldDefault {
    /// `false`, 0, the empty string.
    Nothing,
    /// This JSON.
    IfAbsent(&'static str),
    /// This JSON, and a written zero or empty string counts as nothing too: the field is no pointer in Go.
    UnlessZero(&'static str),
}

/// A field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its path, with dots; `[]` behind a list of structures.
    pub path: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// The release that brought it; `None` for those that 1.24 had. None was removed up to 1.36.
    pub since: Option<Minor>,
    /// What counts without it, of a kubelet that was given `--config`, in the newest release of the table.
    pub default: FieldDefault,
}

use FieldDefault::{IfAbsent, Nothing, UnlessZero};
use Kind::{Bool, Duration, Flexible, Float, Int32, Int64, List, Map, Object, Quantity, String, Uint32};

const fn field(path: &'static str, kind: Kind, since: u16, default: FieldDefault) -> Field {
    Field { path, kind, since: if since == 0 { None } else { Some(Minor(since)) }, default }
}

/// The fields, sorted by path.
///
/// Paths, kinds and defaults were printed from k8s.io/kubelet v0.36.3 (`config/v1beta1/types.go`, by reflection) and
/// k8s.io/kubernetes v1.36.3 (`pkg/kubelet/apis/config/v1beta1/defaults.go`, `pkg/kubelet/eviction/defaults_linux.go`),
/// with their default feature gates, by `tests/cluster/fields`; kubelet 1.36.3 took each of them; releases come from the tags of kubernetes/kubelet, by field of the first level.
#[rustfmt::skip]
pub const FIELDS: &[Field] = &[
    field("address", String, 0, UnlessZero(r#""0.0.0.0""#)),
    field("allowedUnsafeSysctls", List(&String), 0, Nothing),
    field("apiVersion", String, 0, Nothing),
    field("authentication", Object, 0, Nothing),
    field("authentication.anonymous", Object, 0, Nothing),
    field("authentication.anonymous.enabled", Bool, 0, IfAbsent("false")),
    field("authentication.webhook", Object, 0, Nothing),
    field("authentication.webhook.cacheTTL", Duration, 0, UnlessZero(r#""2m0s""#)),
    field("authentication.webhook.enabled", Bool, 0, IfAbsent("true")),
    field("authentication.x509", Object, 0, Nothing),
    field("authentication.x509.clientCAFile", String, 0, Nothing),
    field("authorization", Object, 0, Nothing),
    field("authorization.mode", String, 0, UnlessZero(r#""Webhook""#)),
    field("authorization.webhook", Object, 0, Nothing),
    field("authorization.webhook.cacheAuthorizedTTL", Duration, 0, UnlessZero(r#""5m0s""#)),
    field("authorization.webhook.cacheUnauthorizedTTL", Duration, 0, UnlessZero(r#""30s""#)),
    field("cgroupDriver", String, 0, UnlessZero(r#""cgroupfs""#)),
    field("cgroupRoot", String, 0, Nothing),
    field("cgroupsPerQOS", Bool, 0, IfAbsent("true")),
    field("clusterDNS", List(&String), 0, Nothing),
    field("clusterDomain", String, 0, Nothing),
    field("configMapAndSecretChangeDetectionStrategy", String, 0, UnlessZero(r#""Watch""#)),
    field("containerLogMaxFiles", Int32, 0, IfAbsent("5")),
    field("containerLogMaxSize", String, 0, UnlessZero(r#""10Mi""#)),
    field("containerLogMaxWorkers", Int32, 30, IfAbsent("1")),
    field("containerLogMonitorInterval", Duration, 30, IfAbsent(r#""10s""#)),
    field("containerRuntimeEndpoint", String, 27, UnlessZero(r#""unix:///run/containerd/containerd.sock""#)),
    field("contentType", String, 0, UnlessZero(r#""application/vnd.kubernetes.protobuf""#)),
    field("cpuCFSQuota", Bool, 0, IfAbsent("true")),
    field("cpuCFSQuotaPeriod", Duration, 0, IfAbsent(r#""100ms""#)),
    field("cpuManagerPolicy", String, 0, UnlessZero(r#""none""#)),
    field("cpuManagerPolicyOptions", Map(&String), 0, Nothing),
    field("cpuManagerReconcilePeriod", Duration, 0, UnlessZero(r#""10s""#)),
    field("crashLoopBackOff", Object, 32, Nothing),
    field("crashLoopBackOff.maxContainerRestartPeriod", Duration, 32, IfAbsent(r#""5m0s""#)),
    field("enableContentionProfiling", Bool, 0, Nothing),
    field("enableControllerAttachDetach", Bool, 0, IfAbsent("true")),
    field("enableDebugFlagsHandler", Bool, 0, IfAbsent("true")),
    field("enableDebuggingHandlers", Bool, 0, IfAbsent("true")),
    field("enableProfilingHandler", Bool, 0, IfAbsent("true")),
    field("enableServer", Bool, 0, IfAbsent("true")),
    field("enableSystemLogHandler", Bool, 0, IfAbsent("true")),
    field("enableSystemLogQuery", Bool, 27, Nothing),
    field("enforceNodeAllocatable", List(&String), 0, IfAbsent(r#"["pods"]"#)),
    field("eventBurst", Int32, 0, UnlessZero("100")),
    field("eventRecordQPS", Int32, 0, IfAbsent("50")),
    field("evictionHard", Map(&String), 0, IfAbsent(r#"{"imagefs.available":"15%","imagefs.inodesFree":"5%","memory.available":"100Mi","nodefs.available":"10%","nodefs.inodesFree":"5%"}"#)),
    field("evictionMaxPodGracePeriod", Int32, 0, Nothing),
    field("evictionMinimumReclaim", Map(&String), 0, Nothing),
    field("evictionPressureTransitionPeriod", Duration, 0, UnlessZero(r#""5m0s""#)),
    field("evictionSoft", Map(&String), 0, Nothing),
    field("evictionSoftGracePeriod", Map(&String), 0, Nothing),
    field("failCgroupV1", Bool, 31, IfAbsent("true")),
    field("failSwapOn", Bool, 0, IfAbsent("true")),
    field("featureGates", Map(&Bool), 0, Nothing),
    field("fileCheckFrequency", Duration, 0, UnlessZero(r#""20s""#)),
    field("hairpinMode", String, 0, UnlessZero(r#""promiscuous-bridge""#)),
    field("healthzBindAddress", String, 0, UnlessZero(r#""127.0.0.1""#)),
    field("healthzPort", Int32, 0, IfAbsent("10248")),
    field("httpCheckFrequency", Duration, 0, UnlessZero(r#""20s""#)),
    field("imageGCHighThresholdPercent", Int32, 0, IfAbsent("85")),
    field("imageGCLowThresholdPercent", Int32, 0, IfAbsent("80")),
    field("imageMaximumGCAge", Duration, 29, Nothing),
    field("imageMinimumGCAge", Duration, 0, UnlessZero(r#""2m0s""#)),
    field("imagePullCredentialsVerificationPolicy", String, 33, UnlessZero(r#""NeverVerifyPreloadedImages""#)),
    field("imageServiceEndpoint", String, 27, Nothing),
    field("iptablesDropBit", Int32, 0, IfAbsent("15")),
    field("iptablesMasqueradeBit", Int32, 0, IfAbsent("14")),
    field("kernelMemcgNotification", Bool, 0, Nothing),
    field("kind", String, 0, Nothing),
    field("kubeAPIBurst", Int32, 0, UnlessZero("100")),
    field("kubeAPIQPS", Int32, 0, IfAbsent("50")),
    field("kubeReserved", Map(&String), 0, Nothing),
    field("kubeReservedCgroup", String, 0, Nothing),
    field("kubeletCgroups", String, 0, Nothing),
    field("localStorageCapacityIsolation", Bool, 25, IfAbsent("true")),
    field("logging", Object, 0, Nothing),
    field("logging.flushFrequency", Flexible, 0, UnlessZero(r#""5s""#)),
    field("logging.format", String, 0, UnlessZero(r#""text""#)),
    field("logging.options", Object, 0, Nothing),
    field("logging.options.json", Object, 0, Nothing),
    field("logging.options.json.infoBufferSize", Quantity, 0, UnlessZero(r#""0""#)),
    field("logging.options.json.splitStream", Bool, 0, Nothing),
    field("logging.options.text", Object, 0, Nothing),
    field("logging.options.text.infoBufferSize", Quantity, 0, UnlessZero(r#""0""#)),
    field("logging.options.text.splitStream", Bool, 0, Nothing),
    field("logging.verbosity", Uint32, 0, Nothing),
    field("logging.vmodule", List(&Object), 0, Nothing),
    field("logging.vmodule[].filePattern", String, 0, Nothing),
    field("logging.vmodule[].verbosity", Uint32, 0, Nothing),
    field("makeIPTablesUtilChains", Bool, 0, IfAbsent("true")),
    field("maxOpenFiles", Int64, 0, UnlessZero("1000000")),
    field("maxParallelImagePulls", Int32, 27, Nothing),
    field("maxPods", Int32, 0, UnlessZero("110")),
    field("memoryManagerPolicy", String, 0, UnlessZero(r#""None""#)),
    field("memoryReservationPolicy", String, 36, UnlessZero(r#""None""#)),
    field("memorySwap", Object, 0, Nothing),
    field("memorySwap.swapBehavior", String, 0, Nothing),
    field("memoryThrottlingFactor", Float, 0, IfAbsent("0.9")),
    field("mergeDefaultEvictionSettings", Bool, 33, IfAbsent("false")),
    field("nodeLeaseDurationSeconds", Int32, 0, UnlessZero("40")),
    field("nodeStatusMaxImages", Int32, 0, IfAbsent("50")),
    field("nodeStatusReportFrequency", Duration, 0, UnlessZero(r#""5m0s""#)),
    field("nodeStatusUpdateFrequency", Duration, 0, UnlessZero(r#""10s""#)),
    field("oomScoreAdj", Int32, 0, IfAbsent("-999")),
    field("podCIDR", String, 0, Nothing),
    field("podLogsDir", String, 30, UnlessZero(r#""/var/log/pods""#)),
    field("podPidsLimit", Int64, 0, IfAbsent("-1")),
    field("podsPerCore", Int32, 0, Nothing),
    field("port", Int32, 0, UnlessZero("10250")),
    field("preloadedImagesVerificationAllowlist", List(&String), 33, Nothing),
    field("protectKernelDefaults", Bool, 0, Nothing),
    field("providerID", String, 0, Nothing),
    field("qosReserved", Map(&String), 0, Nothing),
    field("readOnlyPort", Int32, 0, Nothing),
    field("registerNode", Bool, 0, IfAbsent("true")),
    field("registerWithTaints", List(&Object), 0, Nothing),
    field("registerWithTaints[].effect", String, 0, Nothing),
    field("registerWithTaints[].key", String, 0, Nothing),
    field("registerWithTaints[].timeAdded", String, 0, Nothing),
    field("registerWithTaints[].value", String, 0, Nothing),
    field("registryBurst", Int32, 0, UnlessZero("10")),
    field("registryPullQPS", Int32, 0, IfAbsent("5")),
    field("reservedMemory", List(&Object), 0, Nothing),
    field("reservedMemory[].limits", Map(&Quantity), 0, Nothing),
    field("reservedMemory[].numaNode", Int32, 0, Nothing),
    field("reservedSystemCPUs", String, 0, Nothing),
    field("resolvConf", String, 0, IfAbsent(r#""/etc/resolv.conf""#)),
    field("rotateCertificates", Bool, 0, Nothing),
    field("runOnce", Bool, 0, Nothing),
    field("runtimeRequestTimeout", Duration, 0, UnlessZero(r#""2m0s""#)),
    field("seccompDefault", Bool, 0, IfAbsent("false")),
    field("serializeImagePulls", Bool, 0, IfAbsent("true")),
    field("serverTLSBootstrap", Bool, 0, Nothing),
    field("showHiddenMetricsForVersion", String, 0, Nothing),
    field("shutdownGracePeriod", Duration, 0, Nothing),
    field("shutdownGracePeriodByPodPriority", List(&Object), 0, Nothing),
    field("shutdownGracePeriodByPodPriority[].priority", Int32, 0, Nothing),
    field("shutdownGracePeriodByPodPriority[].shutdownGracePeriodSeconds", Int64, 0, Nothing),
    field("shutdownGracePeriodCriticalPods", Duration, 0, Nothing),
    field("singleProcessOOMKill", Bool, 32, Nothing),
    field("staticPodPath", String, 0, Nothing),
    field("staticPodURL", String, 0, Nothing),
    field("staticPodURLHeader", Map(&List(&String)), 0, Nothing),
    field("streamingConnectionIdleTimeout", Duration, 0, UnlessZero(r#""4h0m0s""#)),
    field("syncFrequency", Duration, 0, UnlessZero(r#""1m0s""#)),
    field("systemCgroups", String, 0, Nothing),
    field("systemReserved", Map(&String), 0, Nothing),
    field("systemReservedCgroup", String, 0, Nothing),
    field("tlsCertFile", String, 0, Nothing),
    field("tlsCipherSuites", List(&String), 0, Nothing),
    field("tlsCurvePreferences", List(&Int32), 36, Nothing),
    field("tlsMinVersion", String, 0, Nothing),
    field("tlsPrivateKeyFile", String, 0, Nothing),
    field("topologyManagerPolicy", String, 0, UnlessZero(r#""none""#)),
    field("topologyManagerPolicyOptions", Map(&String), 26, Nothing),
    field("topologyManagerScope", String, 0, UnlessZero(r#""container""#)),
    field("tracing", Object, 25, Nothing),
    field("tracing.endpoint", String, 25, Nothing),
    field("tracing.samplingRatePerMillion", Int32, 25, Nothing),
    field("userNamespaces", Object, 33, Nothing),
    field("userNamespaces.idsPerPod", Int64, 33, Nothing),
    field("volumePluginDir", String, 0, UnlessZero(r#""/usr/libexec/kubernetes/kubelet-plugins/volume/exec/""#)),
    field("volumeStatsAggPeriod", Duration, 0, UnlessZero(r#""1m0s""#)),
];

impl Field {
    /// Whether the kubelet of that version knows the field; an unknown version counts as a new one.
    pub fn is_known_in(&self, version: Option<&Version>) -> bool {
        match (self.since, version) {
            (Some(since), Some(version)) => since <= version.minor,
            _ => true,
        }
    }
}

/// The field of that path.
pub fn find(path: &str) -> Option<&'static Field> {
    FIELDS.binary_search_by(|field| field.path.cmp(path)).ok().map(|index| &FIELDS[index])
}

/// The field `key` of the structure with that prefix, whatever the case of its letters.
pub(super) fn find_in_any_case(prefix: &str, key: &str) -> Option<&'static Field> {
    static LOWER: OnceLock<HashMap<std::string::String, &'static Field>> = OnceLock::new();
    let lower = LOWER.get_or_init(|| {
        let named = FIELDS.iter();
        named.map(|field| (field.path.to_ascii_lowercase(), field)).collect()
    });
    let path = format!("{prefix}{key}").to_ascii_lowercase();
    let field = lower.get(&path).copied()?;
    (field.path.starts_with(prefix) && !key.contains(['.', '['])).then_some(field)
}
