use super::*;
use crate::settings::Settings;

const CHRONY: &str =
    "[custom.chrony]\ncondition = 'ChronyHealthy'\nreason = 'ChronyFailed'\nunit.name = 'chrony.service'\n";

fn error(text: &str) -> String {
    toml::from_str::<Settings>(text).unwrap_err().to_string()
}

#[test]
fn a_check_has_defaults_and_exactly_one_source() {
    let settings: Settings = toml::from_str(CHRONY).unwrap();
    let chrony = &settings.custom["chrony"];
    assert_eq!((chrony.problem, &*chrony.healthy_reason), (ProblemStatus::False, "CheckPassed"));
    assert_eq!(chrony.unit.as_ref().map(|unit| &*unit.name), Some("chrony.service"));
    let both = format!("{CHRONY}command.argv = ['/bin/true']");
    assert!(error(&both).contains("exactly one of the tables"), "{}", error(&both));
    let none = "[custom.a]\nreason = 'A'";
    assert!(error(none).contains("exactly one of the tables") && error(none).contains("line 1"), "{}", error(none));
    let log = "[custom.a]\nreason = 'A'\nlog = { unit = 'a.service', identifier = 'b', patterns = ['x'] }";
    assert!(error(log).contains("a unit or an identifier"), "{}", error(log));
}

#[test]
fn what_is_invalid_is_refused_with_its_line() {
    for (setting, line, wanted) in [
        ("condition = 'Ready'", 4, "one of nodevigil's own, of its profiles, or of Kubernetes"),
        ("condition = 'KubeletHealthy'", 4, "one of nodevigil's own"),
        ("condition = 'KernelDeadlock'", 4, "one of nodevigil's own"),
        ("condition = 'chronyHealthy'", 4, "a type such as ChronyHealthy"),
        ("condition = 'Example/ChronyHealthy'", 4, "a type such as ChronyHealthy"),
        ("reason = 'KubeletCrashed'", 2, "not one of nodevigil's"),
        ("reason = 'chrony down'", 2, "a reason in CamelCase"),
        ("problem = 'Unknown'", 4, "unknown variant"),
        ("after_secs = 541", 3, "expected 0 to 540 seconds"),
        ("unit.name = 'data.mount'", 3, "a service, such as chrony.service"),
        ("command.argv = ['df']", 3, "the absolute path of a program"),
        ("log.patterns = ['* ']", 3, "patterns with a text"),
        ("log.patterns = []", 3, "patterns with a text"),
        ("log = { patterns = ['x'], unit = 'kubelet' }", 3, "a unit with its suffix, such as chrony.service"),
        ("log = { patterns = ['x'], identifier = '' }", 3, "a name"),
        ("command = { argv = ['/bin/true'], user = '' }", 3, "a name"),
        ("reason = 'CheckUnknown'", 2, "not one of nodevigil's"),
        ("healthy_reason = 'ChronyFailed'", 1, "the reason of a problem is that of health"),
        ("after_secs = 300\nlog.patterns = ['x']", 1, "`lasts_secs`"),
    ] {
        let key = setting.split([' ', '.']).next().unwrap();
        let mut lines = ["[custom.a]", "reason = 'ChronyFailed'", "unit.name = 'chrony.service'", "# end"];
        match key {
            "reason" => lines[1] = setting,
            "unit" | "command" | "log" | "after_secs" => lines[2] = setting,
            _ => lines[3] = setting,
        }
        let error = error(&lines.join("\n"));
        let place = if wanted.starts_with("one of") { 1 } else { line };
        assert!(error.contains(wanted) && error.contains(&format!("line {place},")), "{setting}: {error}");
    }
    assert!(error(&CHRONY.replace(".chrony]", ".Chrony]")).contains("lower-case letters"));
}

#[test]
fn checks_of_one_type_share_it_and_must_agree() {
    let kernel = "[custom.late]\ncondition = 'ChronyHealthy'\nreason = 'ChronyLate'\nlog.patterns = ['x']\n";
    let settings: Settings = toml::from_str(&format!("{CHRONY}{kernel}")).unwrap();
    let shared = definitions(&settings.custom).unwrap();
    let reasons = ["ChronyFailed", "ChronyLate"].map(|reason| (reason.to_owned(), false));
    assert_eq!((shared.len(), shared[0].reasons.as_slice()), (1, reasons.as_slice()));
    let differs: Settings = toml::from_str(&format!("{CHRONY}{kernel}problem = 'True'\n")).unwrap_or_default();
    assert!(differs.custom.is_empty() || definitions(&differs.custom).is_err());
    let many = (0..33).map(|i| format!("[custom.c{i}]\nreason = 'A'\nlog.patterns = ['x']\n")).collect::<Vec<_>>();
    let many: Settings = toml::from_str(&many.concat()).unwrap();
    assert!(definitions(&many.custom).unwrap_err().contains("33 checks"));
}

#[test]
fn taints_may_list_the_types_of_checks_that_are_on_the_node() {
    let settings: Settings = toml::from_str(CHRONY).unwrap();
    let known = definitions(&settings.custom).unwrap();
    let listed = ["ChronyHealthy", "KubeletHealthy", "NTPProblem"].map(|name| TypeName(name.into())).into();
    assert_eq!(unknown_types(&listed, &known).collect::<Vec<_>>(), ["NTPProblem"]);
}

#[test]
fn checks_are_kept_as_they_are() {
    let text = format!(
        "{CHRONY}[custom.a]\nreason = 'A'\n[custom.a.command]\nargv = ['/bin/true', '$x']\n[custom.b]\nreason = 'B'\nlog.patterns = ['x']\n"
    );
    let settings: Settings = toml::from_str(&text).unwrap();
    assert_eq!(toml::from_str::<Settings>(&toml::to_string(&settings).unwrap()).unwrap(), settings);
}

#[test]
fn a_log_of_any_kind_of_unit_may_be_read_and_a_problem_until_boot_may_come_late() {
    let log = |log: &str| format!("[custom.a]\nreason = 'A'\nafter_secs = 300\nlog = {{ patterns = ['x'], {log} }}");
    for valid in ["lasts_secs = 301, unit = 'data.mount'", "until_boot = true, unit = 'a@b\\\\x2d.timer'"] {
        let valid = log(&valid.replace('\'', "\""));
        assert!(toml::from_str::<Settings>(&valid).is_ok(), "{valid}");
    }
}
