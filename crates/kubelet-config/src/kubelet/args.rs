//! The command line of a running process.

/// The words of a `/proc/PID/cmdline`, each ended by NUL, the program's name first. Bytes that are not UTF-8 show as
/// `U+FFFD`.
pub fn words(cmdline: &[u8]) -> Vec<String> {
    let words = cmdline.split_inclusive(|byte| *byte == 0).map(|word| word.strip_suffix(b"\0").unwrap_or(word));
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn a_cmdline_is_split_at_nul_and_empty_words_count() {
        assert_eq!(
            words(b"kubelet\0--config\0\0--root-dir=/r\xff\0"),
            ["kubelet", "--config", "", "--root-dir=/r\u{fffd}"]
        );
        assert!(words(b"").is_empty());
        // As setproctitle(3) leaves it: without a NUL at its end.
        assert_eq!(words(b"kubelet\0--config=/a"), ["kubelet", "--config=/a"]);
    }
}
