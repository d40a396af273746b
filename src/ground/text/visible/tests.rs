use super::*;

#[track_caller]
fn check(used: TextUse, text: &str, expected: &str) {
    assert_eq!(PythonLiteral(text, used).to_string(), expected, "{text:?}");
}

/// What is written as it is in a text.
#[track_caller]
fn stays(text: &str) {
    check(TextUse::Text, text, &format!("'{text}'"));
}

#[test]
fn what_is_invisible_is_escaped_wherever_it_stands() {
    // All of what languages use, and a sample of the planes that hold next to nothing.
    let all = (0..0x3000).chain(0xfe00..=0xffff).chain((0x3000..=0x10_ffff).step_by(331));
    let all = all.filter_map(char::from_u32);
    let invisible = all.filter(|character| {
        use GeneralCategoryGroup as Group;
        group(*character, Group::Other.union(Group::Separator)) && *character != ' '
            || DefaultIgnorableCodePoint::for_char(*character)
    });
    let named = "\u{fe00}\u{fe0f}\u{34f}\u{2800}\u{a0}\u{3000}\u{17b4}\u{180b}\u{1d173}\u{1bca0}\u{13430}\u{e000}\
                 \u{3164}\u{115f}\u{200b}\u{202e}\u{2066}\u{e0041}\u{ad}\u{2028}\u{378}\u{10ffff}";
    for character in invisible.chain(named.chars()) {
        for text in [format!("a{character}b"), format!("漢{character}字"), format!("{character}")] {
            for used in [TextUse::Code, TextUse::Text, TextUse::Part] {
                let shown = PythonLiteral(&text, used).to_string();
                assert!(!shown.contains(character), "{:x} in {shown}", u32::from(character));
            }
            assert!(!line(&text).contains(character) && !word(&text).contains(character));
        }
        assert!(character.is_ascii() || !json(&character.to_string()).contains(character));
    }
}

#[test]
fn text_in_anybodys_language_stays_readable() {
    stays("Grüße, naïve Œuvre, ça va — «bien»…");
    stays("kapı ve ışık");
    stays("cafe\u{301}");
    stays("漢字、かな：カナ。Tシャツ");
    stays("한국어");
    stays("я пошёл с ним, а она осталась");
    stays("Привет, Windows");
    stays("Ελληνικά");
    stays("हिन्दी में क्षत्रिय");
    stays("ภาษาไทยที่นี่");
    stays("שלום לכולם, 10:30");
    stays("مَرْحَبًا بِكُمْ");
    stays("👍 ❤\u{fe0f} 👩\u{200d}💻 👩🏽\u{200d}🚀 🏳\u{fe0f}\u{200d}🌈");
    stays("it’s “good”, isn’t it");
}

#[test]
fn what_looks_like_something_else_is_escaped() {
    check(TextUse::Text, "/etc/p\u{430}sswd", r"'/etc/p\u0430sswd'");
    check(TextUse::Text, "\u{430}pple.com", r"'\u0430pple.com'");
    check(TextUse::Text, "/tmp/\u{441}\u{43e}\u{440}\u{443}", r"'/tmp/\u0441\u043e\u0440\u0443'");
    check(TextUse::Text, "\u{ff52}\u{ff4d} x", r"'\uff52\uff4d x'");
    check(TextUse::Text, "evil.com\u{2215}good", r"'evil.com\u2215good'");
    check(TextUse::Text, "x\u{2019}, b=1", r"'x\u2019, b=1'");
    check(TextUse::Text, "x\u{2019}", r"'x\u2019'");
    check(TextUse::Code, "rm \u{2013}rf \u{43e}", r"'rm \u2013rf \u043e'");
    check(TextUse::Code, "cat файл_é/漢", "'cat файл_é/漢'");
    assert_eq!(QuotedName("p\u{430}th'").to_string(), r"'p\u0430th\''");
}

#[test]
fn the_direction_of_what_follows_does_not_change() {
    check(TextUse::Text, "/home/\u{5d0}/x", r"'/home/\u05d0/x'");
    check(TextUse::Part, "\u{5d0}", r"'\u05d0'");
    check(TextUse::Code, "\u{5d0} 1", r"'\u05d0 1'");
    check(TextUse::Text, "\u{202e}\u{5d0}", "'\\u202e\u{5d0}'");
}

#[test]
fn marks_and_joiners_stand_only_where_they_belong() {
    check(TextUse::Text, "\u{301}a", r"'\u0301a'");
    check(TextUse::Text, "a'\u{301}", r#""a'\u0301""#);
    check(TextUse::Text, "e\u{301}\u{302}\u{303}\u{304}", "'e\u{301}\u{302}\u{303}\\u0304'");
    check(TextUse::Text, "1\u{20e3}", r"'1\u20e3'");
    check(TextUse::Code, "a\u{338}", r"'a\u0338'");
    check(TextUse::Text, "a\u{fe0f}❤\u{fe0f}\u{fe0f}", "'a\\ufe0f❤\u{fe0f}\\ufe0f'");
    check(TextUse::Text, "a\u{200d}b", r"'a\u200db'");
    check(TextUse::Code, "❤\u{fe0f}", r"'❤\ufe0f'");
}

#[test]
fn words_of_commands_are_as_a_shell_would_take_them() {
    let check = |text: &str, expected: &str| assert_eq!(word(text), expected, "{text:?}");
    check("--flag=x", "--flag=x");
    check("it's", r"'it'\''s'");
    check("/home/josé", "/home/josé");
    check("n\u{43e}de", r"$'n\u043ede'");
    check("a\\\n'\u{200b}", r"$'a\\\n\'\u200b'");
    assert_eq!(line("https://\u{430}pple.com/mcp"), r"https://\u0430pple.com/mcp");
}

#[test]
fn json_says_the_same() {
    let text = serde_json::to_string("a\u{202e}\u{1bca0}é\u{301}\n").unwrap();
    assert_eq!(json(&text), "\"a\\u202e\\ud82f\\udca0é\u{301}\\n\"");
    assert_eq!(serde_json::from_str::<String>(&json(&text)).unwrap(), "a\u{202e}\u{1bca0}é\u{301}\n");
}
