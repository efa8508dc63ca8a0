//! What holds for every path and every object, and the limits that are ours.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "all of this is test code; the exemption in clippy.toml covers test functions only"
)]

use muster_core::jsonpath::{EvalError, JsonPath, MAX_RANGES};
use proptest::prelude::*;
use serde_json::{Value, json};

/// JSON of a few levels, with keys and texts that mean something to the grammar.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c.\\\\'\" é]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c.\\\\'\" é]{0,2}", inner, 0..4)
                .prop_map(|entries| entries.into_iter().collect::<Value>()),
        ]
    })
}

/// Texts that look like paths: fragments of the grammar in any order.
fn any_path() -> impl Strategy<Value = String> {
    let fragment = prop::sample::select(vec![
        ".",
        "..",
        "*",
        "a",
        "b",
        "$",
        "@",
        " ",
        "\\",
        "\\.",
        "[",
        "]",
        "[0]",
        "[-1]",
        "[*]",
        "[0:1]",
        "[::2]",
        "[:",
        "[0,1]",
        "['a']",
        "['a','b']",
        "'",
        "\"",
        "\"a\"",
        "[?(",
        ")]",
        "[?(@.a)]",
        "[?(@.a==1)]",
        "[?(@==\"a\")]",
        "==",
        "<",
        "=",
        "!",
        "}{",
        "}",
        "{",
        "range ",
        "end",
        "true",
        "1",
        "-",
        "1.5",
        "99999999999999999999",
        "\n",
        "é",
        "\\x4",
        "\u{1F389}",
        ",",
        ":",
        "(",
        ")",
    ]);
    prop_oneof![
        3 => proptest::collection::vec(fragment, 0..12).prop_map(|parts| parts.concat()),
        1 => any::<String>(),
    ]
}

/// One step down, with the way to write it.
#[derive(Debug, Clone)]
enum Down {
    Key(String),
    Quoted(String),
    Index(i64),
}

fn any_down() -> impl Strategy<Value = Down> {
    prop_oneof![
        "[a-c.\\\\'\" é]{1,2}".prop_map(Down::Key),
        "[a-c.é]{1,2}".prop_map(Down::Quoted),
        (-3_i64..3).prop_map(Down::Index),
    ]
}

/// The step as text; every character of a key that means something to the grammar is escaped.
fn written(down: &Down) -> String {
    let escaped = |key: &str| {
        key.chars().fold(String::new(), |mut text, character| {
            if matches!(character, '.' | ' ' | '\\') {
                text.push('\\');
            }
            text.push(character);
            text
        })
    };
    match down {
        Down::Key(key) => format!(".{}", escaped(key)),
        Down::Quoted(key) => format!("['{}']", escaped(key)),
        Down::Index(index) => format!("[{index}]"),
    }
}

/// The plain meaning of simple steps: a value, nothing, or an error.
fn walk<'a>(object: &'a Value, way: &[Down]) -> Result<Option<&'a Value>, ()> {
    let mut current = object;
    for down in way {
        let next = match (down, current) {
            // A backslash in a key cannot be written: it always means the character after it.
            (Down::Key(key) | Down::Quoted(key), Value::Object(entries)) => {
                entries.get(&key.replace('\\', ""))
            }
            (Down::Key(_) | Down::Quoted(_), _) | (Down::Index(_), Value::Null) => None,
            (Down::Index(index), Value::Array(items)) => {
                let from_end = usize::try_from(-index).unwrap_or_default();
                let at = match usize::try_from(*index) {
                    Ok(at) => Some(at),
                    Err(_) => items.len().checked_sub(from_end),
                };
                Some(at.and_then(|at| items.get(at)).ok_or(())?)
            }
            (Down::Index(_), _) => return Err(()),
        };
        match next {
            Some(value) => current = value,
            None => return Ok(None),
        }
    }
    Ok(Some(current))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_path_and_no_object_make_it_panic(path in any_path(), object in any_json()) {
        if let Ok(compiled) = JsonPath::parse(&path) {
            let once = format!("{:?}", compiled.eval(&object));
            prop_assert_eq!(once, format!("{:?}", compiled.eval(&object)));
        }
    }

    #[test]
    fn simple_paths_find_what_a_walk_finds(
        way in proptest::collection::vec(any_down(), 1..4),
        object in any_json(),
    ) {
        let path: String = way.iter().map(written).collect();
        let compiled = JsonPath::parse(&path).unwrap();
        match (walk(&object, &way), compiled.eval(&object)) {
            (Err(()), outcome) => prop_assert!(outcome.is_err(), "{path}: {outcome:?}"),
            (Ok(expected), outcome) => {
                let outcome = outcome.unwrap();
                prop_assert_eq!(outcome.len(), 1);
                let found: Vec<&Value> = outcome[0].iter().map(|found| found.value()).collect();
                prop_assert_eq!(found, Vec::from_iter(expected), "{}", path);
            }
        }
    }
}

#[test]
fn a_path_that_multiplies_its_results_is_given_up() {
    let mut object = json!("leaf");
    for _ in 0..100 {
        object = json!({ "x": object });
    }
    let path = JsonPath::parse("..x..x..x..x..x").unwrap();
    assert_eq!(path.eval(&object).unwrap_err(), EvalError::TooManyVisits);
    let filter = JsonPath::parse(".l[?(@..x..x..x..x..x)]").unwrap();
    assert_eq!(
        filter.eval(&json!({ "l": [object] })).unwrap_err(),
        EvalError::TooManyVisits,
        "an existence filter hides other errors, not this one"
    );
}

/// Not only values that are found count: here nearly none are.
#[test]
fn a_path_that_looks_at_values_again_and_again_is_given_up() {
    let nulls = json!({"a": vec![json!(null); 100_000], "n": {"l": vec![0; 100_000]}});
    let again = |text: &str| vec![text; 1_000].join(",");
    for path in [
        format!(".a[*][{}]", again("0")),
        format!("['n',{}]..", again("'n'")),
        format!(".a[*]['x',{}]", again("'x'")),
        format!(".n.l[{}][?(@.x)]", again(":")),
    ] {
        let parsed = JsonPath::parse(&path).unwrap();
        assert_eq!(
            parsed.eval(&nulls).unwrap_err(),
            EvalError::TooManyVisits,
            "{}",
            &path[..20]
        );
    }
    let text = "x".repeat(1 << 20);
    let equal = format!(".l[{}][?(@==\"{text}\")]", again(":"));
    let object = json!({"l": [[text]]});
    let error = JsonPath::parse(&equal).unwrap().eval(&object).unwrap_err();
    assert_eq!(error, EvalError::TooManyVisits);
}

#[test]
fn ranges_nest_to_a_limit() {
    let nested = |depth: usize| "range @}{".repeat(depth) + "@";
    let at_limit = JsonPath::parse(&nested(MAX_RANGES)).unwrap();
    assert!(at_limit.eval(&json!({})).is_ok());
    let beyond = JsonPath::parse(&nested(MAX_RANGES + 1)).unwrap();
    assert_eq!(
        beyond.eval(&json!({})).unwrap_err(),
        EvalError::RangesTooDeep
    );
}

#[test]
fn a_range_over_nothing_has_no_value() {
    let object = json!({"none": [], "nulls": [null], "list": [1]});
    for path in [
        "range .nulls[*]}{@}{end",
        "range .nulls[*]}{range @}{@}{end}{end",
        "range .none[*]}{[0]}{end",
    ] {
        let outcome = JsonPath::parse(path).unwrap().eval(&object).map(|_| ());
        assert!(outcome.is_err(), "{path}");
    }
    // The end of an empty range is found, and what follows counts.
    let after = JsonPath::parse("range .none[*]}{@}{end}{.list").unwrap();
    assert_eq!(after.eval(&object).unwrap()[0][0].value(), &json!([1]));
}
