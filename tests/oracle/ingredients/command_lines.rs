//! Whole `ExecStart=` lines: prefixes, programs, several commands, what makes the unit bad.

use super::{Add, Ingredient};

const fn command(name: &'static str, command: &'static str) -> Ingredient {
    (name, Add::Command(command))
}

const fn lines(name: &'static str, lines: &'static str) -> Ingredient {
    (name, Add::Lines(lines))
}

pub(super) const COMMANDS: &[Ingredient] = &[
    command("plain", "<B> <F> $<V> ${<V>}"),
    command(
        "everything kubeadm's",
        "/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS",
    ),
    command("a dash", "-<B> <F> $<V>"),
    command("argv[0] given", "@<B> kubelet $<V>"),
    command("argv[0] a variable", "@<B> $<V> a ${<V>}"),
    command("argv[0] in braces", "@<B> ${<V>} a"),
    command("argv[0] empty", "@<B> \"\" a"),
    command("argv[0] missing", "@<B>"),
    command("nothing expanded", ":<B> $<V> ${<V>} $$ %n \\x41"),
    command("full privileges", "+<B> $<V>"),
    command("exclamation", "!<B> $<V>"),
    command("two exclamations", "!!<B> $<V>"),
    command("three exclamations", "!!!<B> $<V>"),
    command("plus and exclamation", "+!<B> $<V>"),
    command("several prefixes", "-@:<B> zero $<V>"),
    command("several prefixes, another order", ":+-<B> $<V>"),
    command("a prefix twice", "--<B> $<V>"),
    command("an at sign twice", "@@<B> zero $<V>"),
    command("a pipe", "|<B> $<V>"),
    command("a blank behind the prefix", "- <B> $<V>"),
    command("only a prefix", "-"),
    command("a bare name", "kubelet $<V>"),
    command("a bare name with a prefix", "-kubelet <F>"),
    command("a wrapper", "/usr/local/bin/kubenswrapper <B> $<V>"),
    command("a quoted program", "\"<B>\" $<V>"),
    command("a quoted program with its prefix inside", "\"-<B>\" $<V>"),
    command("a prefix before quotes", "-\"<B>\" $<V>"),
    command("an escaped program", r"\x2fusr\x2fbin\x2fkubelet $<V>"),
    command("a path that is not normal", "/usr//bin/./kubelet $<V>"),
    command("a path with dots", "/usr/bin/../bin/kubelet $<V>"),
    command("a path with a slash at the end", "/usr/bin/kubelet/ $<V>"),
    command("a program by specifier", "/usr/bin/kubelet%% $<V>"),
    command(
        "a program by specifier that is found",
        "%S/../../usr/bin/kubelet $<V>",
    ),
    command("a program that is a variable", "$<V> a"),
    command("a program in braces", "${<V>} a"),
    command("a program with a variable in it", "/usr/bin/${<V>} a"),
    command("a relative program", "bin/kubelet $<V>"),
    command("a program with a blank", "/usr/bin/\\x20kubelet a"),
    command("two commands", "<B> a ; <B> b"),
    command("a semicolon escaped", "<B> a \\; b"),
    command("a semicolon at the end", "<B> a ;"),
    command("a semicolon first", "; <B>"),
    command("two semicolons", "<B> a ; ; b"),
    command("a semicolon that is quoted", "<B> a ';' b \";\""),
    command("a quote that is not closed", "<B> \"a b"),
    command("a single quote that is not closed", "<B> it's"),
    command("a quote that is not closed, with a dash", "-<B> \"a b"),
    command("a bad specifier", "<B> %5 $<V>"),
    command("a bad specifier with a dash", "-<B> %5"),
    command("a bad specifier in the program", "/usr/bin/%5"),
    command("only blanks", "   "),
    command("empty quotes", "\"\" a"),
    command("continued at once", "\\\n<B> \\\n  $<V> \\\n  <F>"),
    command("continued to the end", "<B> $<V> \\"),
    command("continued, commented", "<B> \\\n  --a \\\n#  --b \\\n  --c"),
    command("a backslash and a blank", "<B> --a \\ \n  --b"),
    command("blanks everywhere", " \t <B> \t <F> \t "),
    command("no arguments", "<B>"),
    command("quotes around everything", "\"<B> <F>\""),
    command("an empty variable only", "<B> $NO_SUCH_THING"),
    command(
        "followed by lines of another kind",
        "<B> $<V>\nEnvironment=A=1\nEnvironmentFile=-<E>",
    ),
    command(
        "bad, followed by lines of another kind",
        "<B> \"$<V>\nEnvironment=A=1\nEnvironmentFile=-<E>",
    ),
    command(
        "bad with a dash, followed by others",
        "-<B> \"$<V>\nExecStart=<B> x\nEnvironment=A=1",
    ),
    lines("not reset", "ExecStart=<B> <F>"),
    lines("reset, and none", "ExecStart="),
    lines("reset by blanks", "ExecStart=  \nExecStart=<B> $<V>"),
    lines(
        "reset twice",
        "ExecStart=\nExecStart=<B> a\nExecStart=\nExecStart=<B> b",
    ),
    lines("bad, without a reset", "ExecStart=<B> \"a\nEnvironment=A=1"),
    lines(
        "bad with a dash, without a reset",
        "ExecStart=-<B> \"a\nEnvironment=A=1",
    ),
    lines(
        "relative, without a reset",
        "ExecStart=./kubelet\nEnvironment=A=1",
    ),
    lines(
        "other commands",
        "ExecStartPre=-/bin/true $<V>\nExecStartPost=-/bin/true\nExecStop=-/bin/true\nExecReload=/bin/true",
    ),
    lines("other commands reset", "ExecStartPre=\nExecStartPost="),
    lines("a bad command before", "ExecStartPre=\"x\nEnvironment=A=1"),
    lines("the type exec", "Type=exec"),
    lines("the type notify", "Type=notify"),
    lines("an unknown type", "Type=sImple\nEnvironment=A=1"),
    lines(
        "other settings",
        "LimitNOFILE=1048576\nNice=5\nDelegate=yes\nKillMode=process\nOOMScoreAdjust=-999\nCPUAccounting=true",
    ),
    lines(
        "bad values of other settings",
        "LimitNOFILE=many\nNice=x\nRestart=sometimes\nEnvironment=A=1",
    ),
];
