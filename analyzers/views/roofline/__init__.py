"""The roofline: formats called `roofline.png` and `roofline.svg`, as any file may end."""
