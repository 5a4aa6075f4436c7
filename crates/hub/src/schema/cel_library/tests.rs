//! Every function of the libraries, in rules that hold and in rules that do not.

use serde_json::{Value, json};

use crate::schema::Schema;

/// Whether a rule holds for a value; `None` if it fails.
fn holds(rule: &str, value: &Value) -> Option<bool> {
    let schema = json!({
        "type": "object", "properties": {"spec": {
            "x-kubernetes-preserve-unknown-fields": true, "type": "object",
            "x-kubernetes-validations": [{"rule": rule, "message": "no"}],
        }},
    });
    let schema = Schema::compile(&schema).unwrap_or_else(|error| panic!("{rule}: {error}"));
    let errors = schema.validate(&json!({"spec": value}), None);
    match errors.first() {
        None => Some(true),
        Some(error) if error.detail == "no" => Some(false),
        Some(_) => None,
    }
}

#[test]
fn functions_of_the_libraries() {
    let table = [
        ("quantity('1.5Gi').isGreaterThan(quantity('1G'))", Some(true)),
        ("quantity('100m').isLessThan(quantity('0.1'))", Some(false)),
        (
            "quantity('1k').compareTo(quantity('1000')) == 0 && quantity('-1').sign() == -1",
            Some(true),
        ),
        ("quantity('1').add(quantity('500m')).asApproximateFloat() == 1.5", Some(true)),
        ("quantity('5').sub(2).asInteger() == 3 && !quantity('0.5').isInteger()", Some(true)),
        ("isQuantity('1Ki') && !isQuantity('1Kib')", Some(true)),
        ("quantity('0.5').asInteger() == 0", None),
        ("quantity('x').isInteger()", None),
        ("isIP('10.0.0.1') && !isIP('010.0.0.1') && !isIP('::ffff:1.2.3.4')", Some(true)),
        ("ip('fe80::1').family() == 6 && ip('fe80::1').isLinkLocalUnicast()", Some(true)),
        ("ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified()", Some(true)),
        ("ip('224.0.0.1').isLinkLocalMulticast() && ip('8.8.8.8').isGlobalUnicast()", Some(true)),
        ("ip.isCanonical('::1') && !ip.isCanonical('0:0:0:0:0:0:0:1')", Some(true)),
        ("string(ip('::0001')) == '::1' && ip('::1') == ip('0::1')", Some(true)),
        (
            "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
            Some(true),
        ),
        (
            "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))",
            Some(true),
        ),
        (
            "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && string(cidr('10.1.2.3/8').ip()) == '10.1.2.3'",
            Some(true),
        ),
        (
            "isCIDR('::/0') && !isCIDR('10.0.0.0/33') && cidr('::/64').prefixLength() == 64",
            Some(true),
        ),
        ("url('https://u@example.com:80/a b?x=1&x=2').getHost() == 'example.com:80'", Some(true)),
        (
            "url('https://[::1]:80/').getHostname() == '::1' && url('https://a:8/').getPort() == '8'",
            Some(true),
        ),
        ("url('https://a/b?x=1&x=2').getQuery()['x'] == ['1', '2']", Some(true)),
        (
            "url('/a/b').getEscapedPath() == '/a/b' && url('HTTPS://a').getScheme() == 'https'",
            Some(true),
        ),
        ("url('not a url').getHost() == ''", None),
        ("format.dns1123Label().validate('a-b').hasValue()", Some(false)),
        ("format.dns1123Label().validate('A').value().size() == 1", Some(true)),
        ("format.named('qualifiedName').value().validate('a/b') == optional.none()", Some(true)),
        ("format.named('odd').hasValue()", Some(false)),
        (
            "!format.uuid().validate('x').hasValue() || !format.date().validate('2024-01-31').hasValue()",
            Some(true),
        ),
        (
            "[1, 2, 2].isSorted() && ![2, 1].isSorted() && [1, 2].sum() == 3 && [0.5, 1.0].sum() == 1.5",
            Some(true),
        ),
        ("[3, 1, 2].min() == 1 && ['a', 'c'].max() == 'c'", Some(true)),
        (
            "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1",
            Some(true),
        ),
        ("[].min() == 1", None),
        (
            "sets.contains([1, 2], [1]) && sets.equivalent([1, 1], [1]) && !sets.intersects([1], [2])",
            Some(true),
        ),
        ("'a1b22'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+') == ['1', '22']", Some(true)),
        ("self.?a.orValue(3) == 3 && optional.of(1).hasValue()", Some(true)),
        ("self.b.all(x, quantity(x).isInteger())", Some(true)),
    ];
    let value = json!({"b": ["1", "2k"]});
    for (rule, expected) in table {
        assert_eq!(holds(rule, &value), expected, "{rule}");
    }
}
