//! Small files in the form of node-problem-detector's (<https://github.com/kubernetes/node-problem-detector/tree/master/config>).

use serde_json::json;

use super::*;

use crate::settings::custom::ProblemStatus;

fn imported(monitors: &[serde_json::Value]) -> String {
    let mut import = Import::default();
    for monitor in monitors {
        import.add(
            Path::new("/etc/npd.json"),
            &serde_json::from_value(monitor.clone()).unwrap(),
            Path::new("/opt/npd"),
        );
    }
    import.finished()
}

fn settings(text: &str) -> Settings {
    toml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn lines_of_the_kernel_become_checks_and_conditions_that_nodevigil_has_become_its_profile() {
    let text = imported(&[json!({
        "plugin": "kmsg", "logPath": "/dev/kmsg", "lookback": "5m", "bufferSize": 10, "source": "kernel-monitor",
        "conditions": [
            {"type": "KernelDeadlock", "reason": "KernelHasNoDeadlock", "message": "kernel has no deadlock"},
            {"type": "DiskFailing", "reason": "DiskIsFine", "message": "fine"},
        ],
        "rules": [
            {"type": "temporary", "reason": "OOMKilling", "pattern": "Killed process \\d+ (.+) total-vm:\\d+kB.*"},
            {"type": "temporary", "reason": "KernelOops", "pattern": "BUG: unable to handle .*"},
            {"type": "temporary", "reason": "KernelOops", "pattern": "divide error: 0000 \\[#\\d+\\] SMP"},
            {"type": "permanent", "condition": "KernelDeadlock", "reason": "DockerHung", "pattern": "task docker:\\w+ blocked"},
            {"type": "permanent", "condition": "DiskFailing", "reason": "DiskIsFailing", "pattern": "failed command: READ"},
            {"type": "temporary", "reason": "Flagged", "pattern": "(?i)oops"},
        ],
    })]);
    let settings = settings(&text);
    assert_eq!(settings.kubernetes.profile, profile::Profile::Npd, "{text}");
    assert_eq!(
        settings.custom.keys().collect::<Vec<_>>(),
        ["disk-is-failing", "kernel-oops", "kernel-oops-2", "oom-killing"]
    );
    let oom = &settings.custom["oom-killing"];
    assert!(oom.condition.is_none() && !oom.log.as_ref().unwrap().until_boot);
    assert_eq!(oom.log.as_ref().unwrap().patterns.to_vec(), ["*Killed process * * total-vm:*kB"]);
    let disk = &settings.custom["disk-is-failing"];
    assert_eq!(disk.condition.as_deref().unwrap(), "DiskFailing");
    assert_eq!((&*disk.healthy_reason, disk.log.as_ref().unwrap().until_boot), ("DiskIsFine", true));
    assert!(text.contains("# Flagged is not imported: the regular expression \"(?i)oops\" ignores case"), "{text}");
    assert!(text.contains("# DockerHung: nodevigil has KernelDeadlock itself"), "{text}");
}

#[test]
fn commands_and_the_journal_become_checks() {
    let plugin = json!({
        "plugin": "custom", "source": "ntp",
        "pluginConfig": {"invoke_interval": "1m30s", "timeout": "5s", "max_output_length": 80, "skip_initial_status": true},
        "conditions": [{"type": "NTPProblem", "reason": "NTPIsUp", "message": "ntp service is up"}],
        "rules": [
            {"type": "temporary", "reason": "NTPIsDown", "path": "./plugin/check_ntp.sh", "timeout": "3s"},
            {"type": "permanent", "condition": "NTPProblem", "reason": "NTPIsDown", "path": "./plugin/check_ntp.sh", "timeout": "3s"},
            {"type": "temporary", "reason": "DNSUnreachable", "path": "/bin/dns", "args": ["--to", "$x"], "timeout": "9s", "invoke_interval": "1s"},
        ],
    });
    let journal = json!({
        "plugin": "journald", "pluginConfig": {"source": "dockerd"}, "conditions": [],
        "rules": [{"type": "temporary", "reason": "CorruptDockerImage", "pattern": "failed to register layer"}],
    });
    let kernel = json!({
        "plugin": "journald", "pluginConfig": {"source": "kernel"},
        "rules": [
            {"type": "temporary", "reason": "KernelTaint", "pattern": "Tainted: G"},
            {"type": "temporary", "reason": "Vague", "pattern": "[0-9]+ [a-z]"},
        ],
    });
    let text = imported(&[plugin, journal, kernel]);
    let settings = settings(&text);
    let ntp = settings.custom["ntp-is-down"].command.as_ref().unwrap();
    assert_eq!(ntp.argv.to_vec(), ["/opt/npd/plugin/check_ntp.sh"]);
    assert_eq!((ntp.interval_secs.duration().as_secs(), ntp.timeout_secs.duration().as_secs()), (90, 3));
    let dns = settings.custom["dns-unreachable"].command.as_ref().unwrap();
    assert_eq!(dns.argv.to_vec(), ["/bin/dns", "--to", "$x"]);
    assert_eq!((dns.interval_secs.duration().as_secs(), dns.timeout_secs.duration().as_secs()), (5, 5));
    assert_eq!(settings.custom["corrupt-docker-image"].log.as_ref().unwrap().identifier.as_deref(), Some("dockerd"));
    let of_kernel = settings.custom["kernel-taint"].log.as_ref().unwrap();
    assert!(of_kernel.identifier.is_none() && of_kernel.unit.is_none(), "{text}");
    assert!(text.contains("# Vague is not imported: the regular expression"), "{text}");
    assert!(text.contains("NTPIsDown (temporary) is not imported: the condition of the same command"), "{text}");
    assert!(text.contains("# The shortest interval of a check is 5 s, not 1 s"), "{text}");
    assert!(!text.contains("skip_initial_status"), "a check never shows a status before it has one: {text}");
}

#[test]
fn what_has_no_equal_says_why() {
    let file = json!({"plugin": "filelog", "logPath": "/var/log/messages", "rules": [{"type": "temporary", "reason": "A", "pattern": "a"}]});
    let text = imported(&[
        file,
        json!({"cpu": {"metricsConfigs": {}}}),
        json!({"plugin": "journald", "pluginConfig": {}, "rules": []}),
        json!({"plugin": "custom", "rules": [
        {"type": "permanent", "condition": "Ready", "reason": "Down", "path": "/bin/x", "timeout": "5s"},
        {"type": "permanent", "condition": "a b", "reason": "Down", "path": "/bin/x", "timeout": "5s"},
        {"type": "temporary", "reason": "not CamelCase", "path": "/bin/x"},
        {"type": "temporary", "reason": "Late", "path": "/bin/x", "timeout": "soon"},
        {"type": "temporary", "reason": "Repaired", "path": "/bin/x", "args": ["--enable-repair=true"]},
        {"type": "temporary", "reason": "Defender", "path": r"C:\npd\defender.ps1"},
        {"type": "temporary", "reason": "Rare", "path": "/bin/x", "timeout": "2h"}],
        "pluginConfig": {"timeout": "2h"}}),
        json!({"plugin": "kmsg", "delay": "5m", "skipList": [" audit:"], "rules": [
        {"type": "temporary", "reason": "Any", "pattern": ".*", "patternGeneratedMessageSuffix": "see the runbook"}]}),
    ]);
    assert!(settings(&text).custom.is_empty());
    for why in [
        "the journal, not a file",
        "node exporter",
        "it names no source",
        "Down is not imported: the condition is one of nodevigil's own",
        "\"a b\" is invalid",
        "\"not CamelCase\" is invalid",
        "\"soon\" is not a duration",
        "the command repairs",
        r"C:\npd\defender.ps1 is a path of Windows",
        "7200 is out of range: expected 1 to 3600 seconds",
        "delay: a check begins when the agent starts",
        "skipList: a check cannot skip lines",
        "patternGeneratedMessageSuffix: the message is the line alone",
    ] {
        assert!(text.contains(why), "{why}\n{text}");
    }
}

/// node-problem-detector takes each of these files; nodevigil refuses settings in which a type has two healthy reasons, or a problem's reason.
#[test]
fn the_settings_are_valid_whatever_the_conditions_say() {
    let condition = |healthy: &str, reasons: &[&str]| {
        let rule = |reason: &&str| json!({"type": "permanent", "condition": "DiskBad", "reason": reason, "pattern": "bad sector"});
        json!({"plugin": "kmsg", "conditions": [{"type": "DiskBad", "reason": healthy}],
            "rules": reasons.iter().map(rule).collect::<Vec<_>>()})
    };
    let text = imported(&[
        condition("DiskBad", &["DiskBad", "DiskWorse"]),
        condition("disk is good", &["DiskOld"]),
        condition("DiskGood", &["DiskWorst"]),
    ]);
    let checks = settings(&text).custom;
    assert_eq!(checks.keys().collect::<Vec<_>>(), ["disk-bad", "disk-old", "disk-worse"], "{text}");
    definitions(&checks).unwrap();
    for why in [
        "# The healthy reason DiskBad is not imported",
        "# The healthy reason disk is good is not imported",
        "# DiskWorst is not imported: custom.disk-worst: another check of DiskBad has another",
    ] {
        assert!(text.contains(why), "{why}\n{text}");
    }
}

/// In the form of the reference of `NVSentinel` for node-problem-detector, whose policies match type and reason.
#[test]
fn a_reference_of_nvsentinel_keeps_type_and_reason() {
    let text = imported(&[json!({
        "plugin": "custom", "source": "gpu-services", "metricsReporting": false,
        "pluginConfig": {"invoke_interval": "30s", "timeout": "15s", "skip_initial_status": true},
        "conditions": [{"type": "FabricManagerDown", "reason": "FabricManagerActive", "message": "it is active"}],
        "rules": [{"type": "permanent", "condition": "FabricManagerDown", "reason": "FabricManagerNotActive",
            "path": "/etc/npd-plugins/check.sh", "timeout": "12s"}],
    })]);
    let check = settings(&text).custom.remove("fabric-manager-not-active").unwrap();
    assert_eq!((check.condition.as_deref(), &*check.reason), (Some("FabricManagerDown"), "FabricManagerNotActive"));
    assert_eq!((&*check.healthy_reason, check.problem), ("FabricManagerActive", ProblemStatus::True));
}
