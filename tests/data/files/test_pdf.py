from io import BytesIO

import pytest
from pypdf import PdfReader, PdfWriter

from pairsmith.data.files.parsed import DocumentFault, Section, Unreadable
from pairsmith.data.files.pdf import read_pdf


def make_pdf(pages: list[list[str]], title: str = "", password: str | None = None, owner: str = "o") -> bytes:
    """A PDF whose pages have these lines, of Latin letters without brackets; pages may be blank."""
    parts: list[bytes] = []

    def add(body: bytes) -> int:
        parts.append(body)
        return len(parts)

    add(b"<< /Type /Catalog /Pages 2 0 R >>")
    parts.append(b"")
    font = add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    kids = []
    for lines in pages:
        drawn = "".join(f"({line}) Tj T* " for line in lines)
        stream = f"BT /F1 12 Tf 14 TL 72 720 Td {drawn}ET".encode()
        content = add(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        kids.append(
            add(
                b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
                b"/Resources << /Font << /F1 %d 0 R >> >> >>" % (content, font)
            )
        )
    parts[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (
        len(kids),
        b" ".join(b"%d 0 R" % kid for kid in kids),
    )
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(parts, start=1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % at for at in places)
    data += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(parts) + 1, table) + (
        b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(parts) + 1, len(data))
    )
    if not title and password is None:
        return data
    writer = PdfWriter(PdfReader(BytesIO(data)))
    if title:
        writer.add_metadata({"/Title": title})
    if password is not None:
        writer.encrypt(password, owner, algorithm="AES-256")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


def fault(data: bytes) -> DocumentFault:
    with pytest.raises(Unreadable) as caught:
        read_pdf(data)
    return caught.value.fault


def test_pages_are_one_text_with_the_title_of_the_file():
    data = make_pdf(
        [["The first sentence is as long as the line", "and goes on. It ends on the next page, be-"],
         ["cause it is so long. This is the end of it."]],
        title="A Book",
    )  # fmt: skip
    assert read_pdf(data).sections == [
        Section(
            "A Book",
            "The first sentence is as long as the line and goes on. It ends on the next page, because it is "
            "so long. This is the end of it.",
        )
    ]


def test_words_are_joined_at_letters_of_every_language_and_keep_their_hyphen_before_capitals():
    # \\373 is ß in the standard encoding of PDF files.
    lines = ["The first sentence is about a long old Stra-", "\\373e in a town that is called Garmisch-Parten-",
             "kirchen, and another one in North Rhine-", "Westphalia."]  # fmt: skip
    (section,) = read_pdf(make_pdf([lines])).sections
    assert "old Straße in" in section.text
    assert "Partenkirchen" in section.text
    assert "Rhine-Westphalia" in section.text


def test_a_title_has_no_control_characters():
    data = make_pdf([["Text."]], title="A\x00 \x02Good\n Book\x7f")
    assert read_pdf(data).sections == [Section("A Good Book", "Text.")]


def test_a_file_without_pages_has_no_text():
    assert fault(make_pdf([])) == DocumentFault("empty", "the PDF has no pages")


def test_headers_and_footers_are_left_out():
    texts = ["Winter came.", "Nobody knew why.", "It stayed for two years.", "Then there was spring."]
    pages = [["Acme report", text, f"Page {page} of 4"] for page, text in enumerate(texts, start=1)]
    (section,) = read_pdf(make_pdf(pages)).sections
    assert section.text.split() == " ".join(texts).split()


def test_pages_without_text_are_named():
    parsed = read_pdf(make_pdf([["Some text."], [], ["More text."], []]))
    assert parsed.faults == [
        DocumentFault("scanned", "pages of the PDF have no text; they may be pictures", {"pages": [2, 4]})
    ]
    assert parsed.sections[0].text == "Some text.\nMore text."


def test_a_scanned_file_says_so():
    assert fault(make_pdf([[], []])) == DocumentFault(
        "scanned", "the PDF has no text; they may be pictures", {"pages": [1, 2]}
    )


def test_encrypted_files_need_a_password_unless_it_is_empty():
    assert fault(make_pdf([["Secret."]], password="x")).filter == "encrypted PDF"
    assert read_pdf(make_pdf([["Open."]], password="")).sections == [Section("", "Open.")]


@pytest.mark.parametrize("data", [b"", b"%PDF-1.4 and nothing", b"no PDF at all"])
def test_damaged_files_say_so(data):
    damage = fault(data)
    assert (damage.filter, damage.reason) == ("damaged PDF", "it cannot be read")
    assert damage.details["error"]


def test_a_file_cut_short_is_damaged_or_read_in_part():
    whole = make_pdf([["One."], ["Two."]])
    seen = {_outcome(whole[:end]) for end in range(100, len(whole), 97)}
    assert seen <= {"One.", "Two.", "One.\nTwo.", "damaged PDF", "scanned", "damaged page", "empty"}


def _outcome(data: bytes) -> str:
    try:
        return read_pdf(data).sections[0].text
    except Unreadable as error:
        return error.fault.filter
