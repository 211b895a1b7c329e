import base64
import io

import numpy as np
from PIL import Image

from lookact.judges.encoding import encode_part, encode_png


def test_an_image_survives_the_way_to_the_server_bit_for_bit(images):
    decoded = Image.open(io.BytesIO(base64.b64decode(encode_png(images[0]))))
    assert decoded.format == "PNG"
    np.testing.assert_array_equal(np.array(decoded), images[0])


def test_parts_have_the_form_of_openai(images):
    assert encode_part("which?") == {"type": "text", "text": "which?"}
    part = encode_part(images[0])
    assert part == {"type": "image_url", "image_url": {"url": "data:image/png;base64," + encode_png(images[0])}}
