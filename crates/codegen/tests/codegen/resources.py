"""Checks the modules of a package for resources and prompts, or the expansion of URI templates.

Arguments: `modules`, `templates` or `agreement`, the directory in which `mcptools` is, and the one of the runtime.
"""

import asyncio
import inspect
import json
import sys
import typing
import warnings

sys.path[:0] = sys.argv[2:4]
warnings.simplefilter("error")

import ipybox_templates
from ipybox_results import ToolResult
from ipybox_runtime import ToolRunner


def check_modules(functions, is_async):
    import mcptools.demo
    from mcptools.demo import prompts, resources

    assert "resources" in dir(mcptools.demo)
    assert "lists its 1 tools" in error_of(lambda: mcptools.demo.absent)
    read, got = [], []

    def keep(to, result):
        def sync(self, *values):
            to.append(values)
            return result

        async def coroutine(self, *values):
            return sync(self, *values)

        return coroutine, sync

    ToolRunner.read_resource, ToolRunner.read_resource_sync = keep(read, "held")
    messages = ToolResult("hi", ["hi"], {"roles": ["user"]})
    ToolRunner.prompt, ToolRunner.prompt_sync = keep(got, messages)
    suffix = "_sync" if is_async else "_async"

    def call(module, name, /, *values, **named):
        results = []
        for function in (getattr(module, name), getattr(module, name + suffix)):
            result = function(*values, **named)
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            typing.get_type_hints(function, vars(module))
            results.append(result)
        assert repr(results[0]) == repr(results[1])
        return results[0]

    assert len(functions[0]) > 20 and len(set(functions[0])) == len(functions[0])
    for name in functions[0]:
        if "name" not in inspect.signature(getattr(resources, name)).parameters:
            continue
        assert call(resources, name, "a/b", CLIENT=5) == "held"
        assert read[-2:] == [("t://a%2Fb?CLIENT=5",)] * 2, read[-1]
    assert call(resources, "read", "u") == "held" and read[-1] == ("u",)
    for name in functions[1]:
        parameters = inspect.signature(getattr(prompts, name)).parameters.values()
        required = [p.name for p in parameters if p.default is inspect.Parameter.empty]
        (message,) = call(prompts, name, *required)
        assert (message.role, message.content) == ("user", "hi")
        assert list(got[-1][1].values()) == required
    call(prompts, "get", "p", name="x", left_out=None, other=[True, "ü"])
    assert got[-1] == ("p", {"name": "x", "other": '[true, "ü"]'})
    for module in (prompts, resources):
        compile(inspect.getsource(module), module.__file__, "exec")
        assert str(module).startswith(module.__name__)


def error_of(function):
    try:
        function()
    except Exception as error:  # noqa: BLE001 - its text is compared
        return str(error)
    raise AssertionError("no error")


# The variables and the examples of RFC 6570, section 3.2.
VARIABLES = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": 1024,
    "y": 768,
    "empty": "",
    "empty_keys": {},
    "undef": None,
}
EXAMPLES = """
{count} one,two,three
{count*} one,two,three
{/count} /one,two,three
{/count*} /one/two/three
{;count} ;count=one,two,three
{;count*} ;count=one;count=two;count=three
{?count} ?count=one,two,three
{?count*} ?count=one&count=two&count=three
{&count*} &count=one&count=two&count=three
{var} value
{hello} Hello%20World%21
{half} 50%25
O{empty}X OX
O{undef}X OX
{x,y} 1024,768
{x,hello,y} 1024,Hello%20World%21,768
?{x,empty} ?1024,
?{x,undef} ?1024
?{undef,y} ?768
{var:3} val
{var:30} value
{list} red,green,blue
{list*} red,green,blue
{keys} semi,%3B,dot,.,comma,%2C
{keys*} semi=%3B,dot=.,comma=%2C
{+var} value
{+hello} Hello%20World!
{+half} 50%25
{base}index http%3A%2F%2Fexample.com%2Fhome%2Findex
{+base}index http://example.com/home/index
O{+empty}X OX
O{+undef}X OX
{+path}/here /foo/bar/here
here?ref={+path} here?ref=/foo/bar
up{+path}{var}/here up/foo/barvalue/here
{+x,hello,y} 1024,Hello%20World!,768
{+path,x}/here /foo/bar,1024/here
{+path:6}/here /foo/b/here
{+list} red,green,blue
{+list*} red,green,blue
{+keys} semi,;,dot,.,comma,,
{+keys*} semi=;,dot=.,comma=,
{#var} #value
{#hello} #Hello%20World!
{#half} #50%25
foo{#empty} foo#
foo{#undef} foo
{#x,hello,y} #1024,Hello%20World!,768
{#path,x}/here #/foo/bar,1024/here
{#path:6}/here #/foo/b/here
{#list} #red,green,blue
{#list*} #red,green,blue
{#keys} #semi,;,dot,.,comma,,
{#keys*} #semi=;,dot=.,comma=,
{.who} .fred
{.who,who} .fred.fred
{.half,who} .50%25.fred
www{.dom*} www.example.com
X{.var} X.value
X{.empty} X.
X{.undef} X
X{.var:3} X.val
X{.list} X.red,green,blue
X{.list*} X.red.green.blue
X{.keys} X.semi,%3B,dot,.,comma,%2C
X{.keys*} X.semi=%3B.dot=..comma=%2C
X{.empty_keys} X
X{.empty_keys*} X
{/who} /fred
{/who,who} /fred/fred
{/half,who} /50%25/fred
{/who,dub} /fred/me%2Ftoo
{/var} /value
{/var,empty} /value/
{/var,undef} /value
{/var,x}/here /value/1024/here
{/var:1,var} /v/value
{/list} /red,green,blue
{/list*} /red/green/blue
{/list*,path:4} /red/green/blue/%2Ffoo
{/keys} /semi,%3B,dot,.,comma,%2C
{/keys*} /semi=%3B/dot=./comma=%2C
{;who} ;who=fred
{;half} ;half=50%25
{;empty} ;empty
{;v,empty,who} ;v=6;empty;who=fred
{;v,bar,who} ;v=6;who=fred
{;x,y} ;x=1024;y=768
{;x,y,empty} ;x=1024;y=768;empty
{;x,y,undef} ;x=1024;y=768
{;hello:5} ;hello=Hello
{;list} ;list=red,green,blue
{;list*} ;list=red;list=green;list=blue
{;keys} ;keys=semi,%3B,dot,.,comma,%2C
{;keys*} ;semi=%3B;dot=.;comma=%2C
{?who} ?who=fred
{?half} ?half=50%25
{?x,y} ?x=1024&y=768
{?x,y,empty} ?x=1024&y=768&empty=
{?x,y,undef} ?x=1024&y=768
{?var:3} ?var=val
{?list} ?list=red,green,blue
{?list*} ?list=red&list=green&list=blue
{?keys} ?keys=semi,%3B,dot,.,comma,%2C
{?keys*} ?semi=%3B&dot=.&comma=%2C
{&who} &who=fred
{&half} &half=50%25
?fixed=yes{&x} ?fixed=yes&x=1024
{&x,y,empty} &x=1024&y=768&empty=
{&x,y,undef} &x=1024&y=768
{&var:3} &var=val
{&list} &list=red,green,blue
{&list*} &list=red&list=green&list=blue
{&keys} &keys=semi,%3B,dot,.,comma,%2C
{&keys*} &semi=%3B&dot=.&comma=%2C
"""


def check_templates():
    lines = EXAMPLES.strip().splitlines()
    for line in lines:
        template, _, expected = line.partition(" ")
        expanded = ipybox_templates.expand(template, VARIABLES)
        assert expanded == expected, (template, expanded, expected)
    expand = ipybox_templates.expand
    # Beyond the examples: what is encoded already, letters beyond ASCII, literals, missing variables.
    for template, variables, expected in [
        ("{+a}{#a}", {"a": "x%2Fy%zz"}, "x%2Fy%25zz#x%2Fy%25zz"),
        ("{a}", {"a": "x%2F"}, "x%252F"),
        ("{a:2}{+a:2}", {"a": "äöü"}, "%C3%A4%C3%B6%C3%A4%C3%B6"),
        ("a b/ü%20{a}", {}, "a%20b/%C3%BC%20"),
        ("{?a*}", {"a": {"k": "", "n": None}}, "?k="),
        ("{;a*}", {"a": {"k": ""}}, ";k"),
        ("{a*}", {"a": {"k": ""}}, "k="),
        ("{?a}{b}", {"a": [], "b": (1, 2.5, True)}, "1,2.5,true"),
        ("s://{user-id}/{a.b}", {"user-id": 1, "a.b": 2}, "s://1/2"),
        ("", {}, ""),
    ]:
        expanded = expand(template, variables)
        assert expanded == expected, (template, expanded)
    for template in [
        "{",
        "}",
        "{a",
        "a}",
        "{}",
        "{a,}",
        "{=a}",
        "{a b}",
        "{a:0}",
        "{a:x}",
        "{{a}}",
    ]:
        assert template in error_of(
            lambda template=template: expand(template, {"a": 1})
        )
    assert "'a' has to be" in error_of(lambda: expand("{a}", {"a": [object()]}))
    assert "'a' has to be a string" in error_of(lambda: expand("{a:3}", {"a": ["x"]}))
    assert ipybox_templates.names("a{b,c:3}{?d*}{b}") == ["b", "c", "d"]


def check_agreement(cases):
    for template, is_broken in cases:
        try:
            ipybox_templates.expand(template, {})
        except ValueError:
            assert is_broken, template
        else:
            assert not is_broken, template


if sys.argv[1] == "agreement":
    check_agreement(json.load(sys.stdin))
elif sys.argv[1] == "modules":
    check_modules(**json.load(sys.stdin))
else:
    check_templates()
