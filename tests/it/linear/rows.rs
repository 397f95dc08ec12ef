//! The pieces of which texts that take long are made.

/// A piece of text, once for each number.
pub(super) type Piece = fn(usize) -> String;
/// A name, what comes before the pieces, the piece, what comes behind them.
pub(super) type Row = (&'static str, &'static str, Piece, &'static str);

/// The same piece every time.
macro_rules! same {
    ($text:expr) => {
        |_| $text.to_owned()
    };
}

/// A piece with its number.
macro_rules! numbered {
    ($($text:tt)*) => { |number| format!($($text)*, n = number) };
}

const EXEC: &str = "\nExecStart=/usr/bin/kubelet $A ${B}\n";
pub(super) const HEAD: &str =
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
const JSON: &str = "{\"apiVersion\": \"kubelet.config.k8s.io/v1beta1\", \"kind\": \"KubeletConfiguration\", \"x\": ";

/// Lines of a unit's section `[Service]`.
#[rustfmt::skip]
pub(super) const UNITS: &[Row] = &[
    ("one variable, many lines", "", same!("Environment=A=--v=2\n"), EXEC),
    ("one variable, many words", "Environment=", same!("A=1 "), EXEC),
    ("many variables", "", numbered!("Environment=A{n}=1\n"), EXEC),
    ("many flags in many variables", "", numbered!("Environment=A{n}=--v={n}\n"), EXEC),
    ("words that assign nothing", "Environment=A=--x ", same!("--y "), EXEC),
    ("lines with words that assign nothing", "", same!("Environment=A=--v=2 --y\n"), EXEC),
    ("quotes never closed", "", same!("Environment=\"A=1\n"), EXEC),
    ("a quote in every word", "Environment=", same!("A=\"1 "), EXEC),
    ("a lone quote, many words", "Environment=\"", same!("A=1 "), EXEC),
    ("escapes", "Environment=A=", same!("\\x41"), EXEC),
    ("specifiers", "Environment=A=", same!("%n"), EXEC),
    ("words with a specifier", "Environment=", same!("A=%n "), EXEC),
    ("words with an unknown specifier", "Environment=", same!("A=%& "), EXEC),
    ("resets", "", same!("Environment=A=1\nEnvironment=\n"), EXEC),
    ("resets without anything to reset", EXEC, same!("Environment=\n"), ""),
    ("a late reset", "", numbered!("Environment=A{n}=--v=1\n"), "Environment=\nExecStart=/usr/bin/kubelet $A1\n"),
    ("commands, each reset", "", same!("ExecStart=/usr/bin/kubelet --v=2\nExecStart=\n"), EXEC),
    ("commands, none reset", "", same!("ExecStart=/usr/bin/kubelet --v=2\n"), ""),
    ("commands with semicolons", "Type=oneshot\nExecStart=/a", same!(" ; /usr/bin/kubelet"), "\n"),
    ("commands before", "ExecStart=/usr/bin/kubelet\n", same!("ExecStartPre=/bin/true $A\n"), ""),
    ("unknown keys", EXEC, same!("Environmen=A=1\n"), ""),
    ("many unknown keys", EXEC, numbered!("Key{n}=--v={n}\n"), ""),
    ("unknown sections", EXEC, numbered!("[S{n}]\n"), ""),
    ("an unknown section", "ExecStart=/usr/bin/kubelet\n[service]\n", same!("A=--v=2\n"), ""),
    ("lines without an equals sign", EXEC, same!("x\n"), ""),
    ("malformed headers", EXEC, same!("[x\n"), ""),
    ("dependencies", EXEC, same!("Wants=a.service\n"), ""),
    ("dependencies in one line", "ExecStart=/usr/bin/kubelet\n[Unit]\nAfter=", same!("a.service "), "\n"),
    ("one setting", EXEC, same!("Restart=always\n"), ""),
    ("names to unset", "Environment=A=1\nUnsetEnvironment=", same!("A "), EXEC),
    ("many names to unset", "", numbered!("Environment=A{n}=1\nUnsetEnvironment=A{n}\n"), EXEC),
    ("names to pass", "PassEnvironment=", numbered!("A{n} "), EXEC),
    ("one file, many times", "", same!("EnvironmentFile=-/etc/default/kubelet\n"), EXEC),
    ("files that are missing", "", numbered!("EnvironmentFile=/missing{n}\n"), EXEC),
    ("files that are no paths", "", same!("EnvironmentFile=x\n"), EXEC),
    ("continued lines", "ExecStart=/usr/bin/kubelet \\\n", same!("--v=2 \\\n"), "--v=3\n"),
    ("continued lines, nothing in them", "ExecStart=/usr/bin/kubelet ", same!("\\\n"), "--v=3\n"),
    ("comments between continued lines", "ExecStart=/usr/bin/kubelet \\\n", same!("# x\n"), "--v=3\n"),
    ("backslashes", "ExecStart=/usr/bin/kubelet ", same!("\\"), "\n"),
    ("blanks behind backslashes", EXEC, same!("Environment=A=1 \\ \n"), ""),
    ("line ends", EXEC, same!("\r\n\0"), ""),
    ("letters of two bytes", EXEC, same!("é=é\n"), ""),
    ("one line of letters of two bytes", "ExecStart=/usr/bin/kubelet ", same!("é é"), "\n"),
    ("comments that allow", "", same!("# nodevigil: allow FL001 because of x\n"), EXEC),
    ("comments that allow, between words", "ExecStart=/usr/bin/kubelet \\\n", numbered!("# nodevigil: allow FL009 SD001 x\n --x{n} \\\n"), "--y\n"),
    ("comments that allow without a reason", "ExecStart=/usr/bin/kubelet \\\n", numbered!("# nodevigil: allow FL001\n --x{n} \\\n"), "--y\n"),
    ("one comment that allows every rule", "ExecStart=/usr/bin/kubelet --x \\\n# nodevigil: allow ", same!("SD001, "), "\n --y\n"),
];

/// Words of an `ExecStart=`.
#[rustfmt::skip]
pub(super) const COMMAND_LINES: &[Row] = &[
    ("one flag", "", same!("--v=2 "), ""),
    ("one flag, its value behind", "", same!("--v 2 "), ""),
    ("dashes as values", "", same!("--v -- "), "x y z"),
    ("dashes", "", same!("-- "), ""),
    ("dashes and letters", "", same!("-"), ""),
    ("one letter", "-", same!("h"), ""),
    ("words of letters", "", same!("-hv2 "), ""),
    ("unknown flags", "", numbered!("--x{n}=1 "), ""),
    ("unknown flags, values behind", "", numbered!("--x{n} 1 "), ""),
    ("flags with a mistake in the name", "", same!("--max-podz=1 "), ""),
    ("a flag with a name without end", "--", same!("a-"), ""),
    ("bad values", "", numbered!("--max-pods=x{n} "), ""),
    ("removed flags", "", same!("--pod-infra-container-image=x --container-runtime=remote "), ""),
    ("flags of the past", "", same!("--network-plugin=cni --cni-bin-dir=/x "), ""),
    ("strays", "", numbered!("x{n} "), ""),
    ("comments", "", same!("# "), ""),
    ("operators of a shell", "", same!("&& > "), ""),
    ("empty words", "", same!("\"\" "), ""),
    ("quotes", "", same!("'"), ""),
    ("labels, one flag", "--node-labels=", numbered!("a{n}=b,"), ""),
    ("labels, one key", "--node-labels=", same!("a=b,"), ""),
    ("labels that may not be", "--node-labels=", numbered!("kubernetes.io/a{n}=b,"), ""),
    ("labels, many flags", "", numbered!("--node-labels=a{n}=b "), ""),
    ("commas", "--node-labels=", same!(","), ""),
    ("taints", "--register-with-taints=", numbered!("a{n}=b:NoSchedule,"), ""),
    ("taints, many flags", "", numbered!("--register-with-taints=a{n}=b:NoSchedule "), ""),
    ("feature gates", "--feature-gates=", numbered!("A{n}=true,"), ""),
    ("feature gates, many flags", "", numbered!("--feature-gates=A{n}=true "), ""),
    ("thresholds", "--eviction-hard=", numbered!("memory{n}.available<5%,"), ""),
    ("one threshold", "--eviction-hard=", same!("memory.available<5%,"), ""),
    ("resources", "--kube-reserved=", numbered!("cpu{n}=1,"), ""),
    ("resources, many flags", "", same!("--system-reserved=cpu=1 "), ""),
    ("addresses", "--cluster-dns=", same!("10.0.0.1,"), ""),
    ("addresses of the node", "--node-ip=", same!("10.0.0.1,"), ""),
    ("suites", "--tls-cipher-suites=", same!("TLS_AES_128_GCM_SHA256,"), ""),
    ("settings of the kernel", "--allowed-unsafe-sysctls=", same!("net.core.*,"), ""),
    ("digits", "--max-pods=", same!("9"), ""),
    ("durations", "--sync-frequency=", same!("1h"), ""),
    ("one huge value", "--hostname-override=", same!("x"), ""),
    ("one huge path", "--config=/", same!("x/"), ""),
    ("a path that goes up and down", "--config=/", same!("x/../"), ""),
    ("paths", "", numbered!("--config=/x{n} "), ""),
    ("folders of drop-ins", "", numbered!("--config-dir=/x{n} "), ""),
    ("variables", "", same!("$A "), ""),
    ("variables that are not set", "", same!("$U "), ""),
    ("many variables that are not set", "", numbered!("$U{n} "), ""),
    ("variables in braces", "", same!("${A} "), ""),
    ("variables in braces, in one word", "--x=", same!("${A}"), ""),
    ("variables in braces that are not set", "", same!("${U} "), ""),
    ("variables in braces that are not set, in one word", "--x=", same!("${U}"), ""),
    ("braces never closed", "", same!("${A "), ""),
    ("braces never closed, in one word", "--x=", same!("${A"), ""),
    ("colons in braces", "--x=", same!("${A:"), ""),
    ("dollars", "", same!("$"), ""),
    ("dollars in words", "", same!("$$ "), ""),
    ("names with equals signs", "", same!("$A=1 "), ""),
];

/// Environment files.
#[rustfmt::skip]
pub(super) const ENVIRONMENT_FILES: &[Row] = &[
    ("one variable", "", same!("A=--v=2\n"), ""),
    ("many variables", "", numbered!("A{n}=--v=2\n"), ""),
    ("one value of many words", "A=\"", same!("--v=2 "), "\"\n"),
    ("one value of unknown flags", "A=\"", numbered!("--x{n} "), "\"\n"),
    ("one value of many lines", "A=\"", same!("--v=2\n"), "\"\n"),
    ("one value, continued", "A=", same!("--v=2 \\\n"), "\n"),
    ("one value, nothing but continued", "A=", same!("\\\n"), "\n"),
    ("one value with quotes in it", "A='", same!("\"--v=2\" "), "'\n"),
    ("escapes", "A=", same!("\\x\\\""), "\n"),
    ("quotes never closed", "", same!("A=\"1\n"), ""),
    ("quote after quote", "A=", same!("\"'"), ""),
    ("text behind quotes", "", same!("A=\"x\"y\n"), ""),
    ("comments", "", same!("# A=1\n"), ""),
    ("comments that are continued", "", same!("# A=1 \\\n"), ""),
    ("comments that allow", "", same!("# nodevigil: allow SD001 x\n"), "A=\"--x\n"),
    ("exports", "", same!("export A=1\n"), ""),
    ("names with blanks", "", same!("A B=1\n"), ""),
    ("lines without an equals sign", "", same!("--v=2\n--x\n"), ""),
    ("words without an equals sign", "", same!("x "), ""),
    ("equals signs", "", same!("="), ""),
    ("shell", "", same!("A=$B\nB=$(date)\n"), ""),
    ("line ends", "", same!("A=1\r\n\0"), ""),
    ("letters of two bytes", "A=", same!("é "), "\n"),
    ("one huge word", "A=", same!("x"), "\n"),
];

/// Configurations of the kubelet.
#[rustfmt::skip]
pub(super) const CONFIGURATIONS: &[Row] = &[
    ("one key", HEAD, same!("maxPods: 110\n"), ""),
    ("unknown keys", HEAD, numbered!("x{n}: 1\n"), ""),
    ("one unknown key", HEAD, same!("maxPodz: 1\n"), ""),
    ("wrong values", HEAD, same!("maxPods: x\n"), ""),
    ("a map of many keys", "evictionHard:\n", numbered!("  a{n}: 5%\n"), HEAD),
    ("gates", "featureGates:\n", numbered!("  A{n}: true\n"), HEAD),
    ("reserved", "systemReserved:\n", numbered!("  a{n}: \"1\"\n"), HEAD),
    ("one key of a map", "evictionHard:\n", same!("  memory.available: 5%\n"), HEAD),
    ("maps of headers", "staticPodURLHeader:\n", numbered!("  a{n}: [x]\n"), HEAD),
    ("a list", "clusterDNS:\n", same!("- 10.0.0.1\n"), HEAD),
    ("a list of maps", "registerWithTaints:\n", numbered!("- {{key: a{n}, effect: NoSchedule}}\n"), HEAD),
    ("a list of maps with unknown keys", "registerWithTaints:\n", numbered!("- {{kez: a{n}}}\n"), HEAD),
    ("a list of lists", "clusterDNS:\n", same!("- [a, b]\n"), HEAD),
    ("a list of nothing", "clusterDNS:\n", same!("-\n"), HEAD),
    ("reserved memory", "reservedMemory:\n", same!("- numaNode: 0\n  limits: {memory: 1Gi}\n"), HEAD),
    ("brackets", "x: ", same!("["), ""),
    ("braces", "x: ", same!("{a: "), ""),
    ("pairs of brackets", "x: [", same!("[], "), "]\n"),
    ("indentation", "", |n| format!("{}a:\n", " ".repeat(n % 512)), ""),
    ("dashes", "", same!("- "), "\n"),
    ("aliases of a text", "a: &a x\nb:\n", same!("- *a\n"), HEAD),
    ("aliases of a list", "a: &a [x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x]\nb:\n", same!("- *a\n"), HEAD),
    ("aliases of aliases", "a0: &a0 [x, x]\n", |n| format!("a{m}: &a{m} [*a{n}, *a{n}]\n", m = n + 1), HEAD),
    ("merges", "a: &a {b: 1}\nc:\n", same!("- <<: *a\n"), HEAD),
    ("merges of merges", "a0: &a0 {b: 1}\n", |n| format!("a{m}: &a{m} {{<<: *a{n}, c{n}: 1}}\n", m = n + 1), HEAD),
    ("merges into one map", "a: &a {b: 1}\nc:\n", same!("  <<: *a\n"), HEAD),
    ("anchors", "x:\n", numbered!("- &a{n} x\n"), HEAD),
    ("aliases of nothing", "x:\n", same!("- *a\n"), HEAD),
    ("tags", "x:\n", same!("- !!str 1\n"), HEAD),
    ("documents", HEAD, same!("---\nkind: x\n"), ""),
    ("ends of documents", HEAD, same!("...\n"), ""),
    ("comments", HEAD, same!("# x\n"), ""),
    ("comments that allow", HEAD, same!("# nodevigil: allow CF001 x\n"), "maxPodz: 1\n"),
    ("comments that allow, behind values", HEAD, numbered!("x{n}: 1 # nodevigil: allow CF009 x\n"), ""),
    ("comments that allow without a reason, behind values", HEAD, numbered!("x{n}: 1 # nodevigil: allow CF001\n"), ""),
    ("quotes", HEAD, same!("x: \"a\n"), ""),
    ("one text in quotes", "x: \"", same!("a\n "), "\"\n"),
    ("escapes", "x: \"", same!("\\x41"), "\"\n"),
    ("one text in lines", "x: |\n", same!("  a\n"), HEAD),
    ("one folded text", "x: >\n", same!("  a\n\n"), HEAD),
    ("one plain text", "x: ", same!("a "), "\n"),
    ("one plain text of many lines", "x:\n", same!("  a\n"), HEAD),
    ("one huge key", "", same!("a"), ": 1\n"),
    ("one huge number", "maxPods: ", same!("9"), "\n"),
    ("one huge duration", "syncFrequency: ", same!("1h"), "\n"),
    ("keys that are maps", "", same!("? {a: b}\n"), ""),
    ("keys without end", "", same!("? "), ""),
    ("colons", "", same!("a: "), ""),
    ("tabs", "x:\n", same!("\t"), "\n"),
    ("blanks", "x:\n", same!(" "), "\n"),
    ("line ends", HEAD, same!("\r\n"), ""),
    ("JSON, a list", JSON, same!("1,"), "1]}"),
    ("JSON, a map", JSON, numbered!("\"a{n}\": 1,"), "\"b\": 1}}"),
    ("JSON, brackets", JSON, same!("[1,"), ""),
    ("letters of two bytes", HEAD, numbered!("é{n}: é\n"), ""),
];

/// Configurations of k3s.
#[rustfmt::skip]
pub(super) const K3S: &[Row] = &[
    ("arguments", "kubelet-arg:\n", same!("- v=2\n"), ""),
    ("unknown arguments", "kubelet-arg:\n", numbered!("- x{n}=2\n"), ""),
    ("lists, one over the other", "", same!("kubelet-arg: [v=2]\n"), ""),
    ("lists, one added to the other", "", same!("kubelet-arg+: [v=2]\n"), ""),
    ("labels", "node-label:\n", numbered!("- a{n}=b\n"), ""),
    ("taints", "node-taint:\n", numbered!("- a{n}=b:NoSchedule\n"), ""),
    ("gates", "kubelet-arg:\n", numbered!("- feature-gates=A{n}=true\n"), ""),
    ("unknown keys", "", numbered!("x{n}: 1\n"), ""),
    ("one argument", "kubelet-arg: node-labels=", numbered!("a{n}=b,"), "\n"),
    ("aliases", "a: &a v=2\nkubelet-arg:\n", same!("- *a\n"), ""),
    ("brackets", "kubelet-arg: ", same!("["), ""),
    ("comments that allow", "kubelet-arg:\n", numbered!("- x{n}=1 # nodevigil: allow CF001 x\n"), ""),
];

/// Options of `k3s agent`.
#[rustfmt::skip]
pub(super) const K3S_OPTIONS: &[Row] = &[
    ("arguments of the command line", "", same!("--kubelet-arg=v=2 "), ""),
    ("arguments of the command line, values behind", "", same!("--kubelet-arg v=2 "), ""),
    ("unknown arguments of the command line", "", numbered!("--kubelet-arg=x{n}=2 "), ""),
    ("labels of the command line", "", numbered!("--node-label=a{n}=b "), ""),
    ("unknown options", "", numbered!("--x{n} "), ""),
    ("strays", "", same!("x "), ""),
];

/// Argument files of `MicroK8s`.
#[rustfmt::skip]
pub(super) const ARGUMENT_FILES: &[Row] = &[
    ("one flag", "", same!("--v=2\n"), ""),
    ("unknown flags", "", numbered!("--x{n}=2\n"), ""),
    ("flags in one line", "", same!("--v=2 "), "\n"),
    ("strays", "", numbered!("x{n}\n"), ""),
    ("comments", "", same!("# --v=2\n"), ""),
    ("quotes", "", same!("\"--v=2\n"), ""),
    ("quotes in one line", "", same!("'\""), "\n"),
    ("backslashes", "", same!("--v=2 \\\n"), ""),
    ("variables", "", same!("${SNAP_DATA} $X\n"), ""),
    ("braces never closed", "", same!("${"), ""),
    ("comments that allow", "", numbered!("# nodevigil: allow FL009 x\n--x{n}\n"), ""),
];
