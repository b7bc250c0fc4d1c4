from report.runs import Page

from thanos_peer.report.html import Html, element, join


def test_texts_and_attributes_are_escaped_and_elements_are_not():
    inner = element("b", "1 < 2 & 'x'")
    outer = element("p", inner, "<script>", title='"><img src=x>', class_="a", aria_label="c")
    assert outer == (
        '<p title="&quot;&gt;&lt;img src=x&gt;" class="a" aria-label="c"><b>1 &lt; 2 &amp; &#x27;x&#x27;</b>'
        "&lt;script&gt;</p>"
    )
    page = Page(outer)
    assert [tag for tag, _ in page.tags] == ["p", "b"]
    assert page.all("p", "title") == ['"><img src=x>']


def test_what_was_joined_is_html_and_is_not_escaped_again():
    joined = join("a & b", Html("<hr>"))
    assert joined == "a &amp; b<hr>"
    assert element("p", joined) == "<p>a &amp; b<hr></p>"


def test_elements_without_content_have_no_end():
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert element("td") == "<td></td>"
