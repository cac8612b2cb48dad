"""Documents as people keep them: text, Markdown, HTML and PDF files, in folders or one by one."""
